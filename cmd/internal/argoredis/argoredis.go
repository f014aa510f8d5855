// Package argoredis is the client of the Redis that an Argo CD uses, as package
// config describes it. It never waits for longer than its caller, and logs
// nothing: callers know what an error means to them.
//
//	client := argoredis.Open(cfg.Redis)
//	defer client.Close()
//	value, err := client.Get(ctx, key, 1<<20)
package argoredis

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

const (
	// dialTime bounds a connection's start, TLS included.
	dialTime = 2 * time.Second
	// connections is the most that are open at a time.
	connections = 8
	// scanSteps and scanCount bound Find: calls, and keys looked at in each.
	scanSteps = 100
	scanCount = 1000
	// maxPasswordBytes is the longest password, and maxCABytes the longest file of
	// authorities.
	maxPasswordBytes = 4 << 10
	maxCABytes       = 1 << 20
)

// Client speaks to one Redis. Its methods may be called concurrently.
type Client struct{ redis *redis.Client }

// Open returns a client; it connects when it is used. Password and authorities are
// read again for each connection, so that a rotation needs no restart.
func Open(cfg config.Redis) *Client {
	d := dialer{cfg: cfg}
	return &Client{redis: redis.NewClient(&redis.Options{
		Addr:                       cfg.Address,
		Dialer:                     d.dial,
		CredentialsProviderContext: d.credentials,
		DB:                         cfg.Database,
		DialTimeout:                dialTime,
		DialerRetries:              1,
		ContextTimeoutEnabled:      true,
		MaxRetries:                 -1, // callers come again by themselves
		PoolSize:                   connections,
		MaxActiveConns:             connections,
		ReadBufferSize:             4 << 10,
		WriteBufferSize:            4 << 10,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})}
}

// Close ends all connections.
func (c *Client) Close() error { return c.redis.Close() }

// Get returns the value of a key, of a longer one the first limit bytes, and
// nothing when there is none.
func (c *Client) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	return c.redis.GetRange(ctx, key, 0, int64(limit)-1).Bytes()
}

// Set writes a value that expires by itself.
func (c *Client) Set(ctx context.Context, key string, value []byte, expiry time.Duration) error {
	return c.redis.Set(ctx, key, value, expiry).Err()
}

// Delete removes a key. It is no error when there is none.
func (c *Client) Delete(ctx context.Context, key string) error {
	return c.redis.Del(ctx, key).Err()
}

// Find returns keys that begin with prefix, in no order: all of them, unless there
// are more than about 100,000 keys altogether.
func (c *Client) Find(ctx context.Context, prefix string) ([]string, error) {
	pattern := globSpecial.Replace(prefix) + "*"
	var found []string
	var cursor uint64
	for range scanSteps {
		keys, next, err := c.redis.Scan(ctx, cursor, pattern, scanCount).Result()
		if err != nil {
			return nil, err
		}
		found = append(found, keys...)
		if cursor = next; cursor == 0 {
			break
		}
	}
	return found, nil
}

// globSpecial takes the meaning from what has one in a pattern of Redis.
var globSpecial = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

type dialer struct{ cfg config.Redis }

func (d dialer) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	network, address := "tcp", d.cfg.Address
	if path, ok := strings.CutPrefix(address, "unix://"); ok {
		network, address = "unix", path
	}
	var plain net.Dialer
	conn, err := plain.DialContext(ctx, network, address)
	if err != nil || !d.cfg.TLS.Enabled {
		return conn, err
	}
	settings, err := d.tls()
	if err != nil {
		_ = conn.Close() // never used
		return nil, err
	}
	secure := tls.Client(conn, settings)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close() // as above
		return nil, fmt.Errorf("tls to redis: %w", err)
	}
	return secure, nil
}

func (d dialer) tls() (*tls.Config, error) {
	name := d.cfg.TLS.ServerName
	if name == "" {
		host, _, err := net.SplitHostPort(d.cfg.Address)
		if err != nil {
			return nil, err
		}
		name = host
	}
	settings := &tls.Config{ServerName: name, MinVersion: tls.VersionTLS12}
	if d.cfg.TLS.CAFile == "" {
		return settings, nil // the system's authorities
	}
	pem, err := readFile(d.cfg.TLS.CAFile, maxCABytes)
	if err != nil {
		return nil, fmt.Errorf("authorities of redis: %w", err)
	}
	settings.RootCAs = x509.NewCertPool()
	if !settings.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("authorities of redis: %s holds no certificate in PEM form", d.cfg.TLS.CAFile)
	}
	return settings, nil
}

func (d dialer) credentials(context.Context) (username, password string, err error) {
	if d.cfg.PasswordFile == "" {
		return d.cfg.Username, "", nil
	}
	content, err := readFile(d.cfg.PasswordFile, maxPasswordBytes)
	if err != nil {
		return "", "", fmt.Errorf("password of redis: %w", err)
	}
	password = strings.TrimSpace(string(content))
	if password == "" {
		return "", "", fmt.Errorf("password of redis: %s is empty", d.cfg.PasswordFile)
	}
	return d.cfg.Username, password, nil
}

// readFile reads a file of at most limit bytes.
func readFile(path string, limit int64) (content []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	content, err = io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("%s is longer than %d bytes", path, limit)
	}
	return content, err
}
