package argoredis_test

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/argomesh/argomesh/cmd/internal/argoredis"
	"github.com/argomesh/argomesh/cmd/internal/config"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
	"github.com/argomesh/argomesh/test/kit/certkit"
	"github.com/argomesh/argomesh/test/loopback"
)

// start runs a real Redis until the test ends, and waits until its client, made
// with cfg, can use it.
func start(t *testing.T, cfg config.Redis, args ...string) *argoredis.Client {
	t.Helper()
	harnesstest.SkipMissing(t, "redis-server")
	path, err := harnesstest.Tools(t).Path("redis-server")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"--save", "", "--appendonly", "no", "--dir", t.TempDir()}, args...)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // killed with the test's context
		close(ended)
	}()
	t.Cleanup(func() { <-ended })
	client := open(t, cfg)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); ; {
		_, err := client.Get(t.Context(), "x", 1)
		if err == nil {
			return client
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("redis is not ready: %v", err)
		}
		select {
		case <-tick.C:
		case <-ended:
			t.Fatalf("redis ended:\n%s", out.String())
		}
	}
}

func open(t *testing.T, cfg config.Redis) *argoredis.Client {
	t.Helper()
	client := argoredis.Open(cfg)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}

// socket returns a path short enough for a unix socket.
func socket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "argoredis-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return filepath.Join(dir, "redis.sock")
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestClient(t *testing.T) {
	path := socket(t)
	client, ctx := start(t, config.Redis{Address: "unix://" + path}, "--port", "0", "--unixsocket", path), t.Context()
	for key, value := range map[string]string{"a|b*|1": "one", "a|b*|2": "", "a|bb|1": "two"} {
		if err := client.Set(ctx, key, []byte(value), time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		key   string
		limit int
		want  string
	}{{"a|b*|1", 100, "one"}, {"a|b*|1", 3, "one"}, {"a|b*|1", 2, "on"}, {"a|b*|2", 10, ""}, {"missing", 10, ""}} {
		if got, err := client.Get(ctx, tt.key, tt.limit); err != nil || string(got) != tt.want {
			t.Errorf("Get(%s, %d) = %q, %v, want %q", tt.key, tt.limit, got, err, tt.want)
		}
	}
	found, err := client.Find(ctx, "a|b*|")
	if slices.Sort(found); err != nil || !slices.Equal(found, []string{"a|b*|1", "a|b*|2"}) {
		t.Errorf("Find() = %v, %v", found, err)
	}
	for range 2 {
		if err := client.Delete(ctx, "a|bb|1"); err != nil {
			t.Error(err)
		}
	}
	if got, err := client.Get(ctx, "a|bb|1", 10); err != nil || len(got) != 0 {
		t.Errorf("after Delete: Get() = %q, %v", got, err)
	}
	if err := client.Set(ctx, "short", []byte("x"), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	<-time.After(50 * time.Millisecond)
	if got, err := client.Get(ctx, "short", 10); err != nil || len(got) != 0 {
		t.Errorf("after its expiry: Get() = %q, %v", got, err)
	}
}

func TestClientPassword(t *testing.T) {
	path, password := socket(t), file(t, "s3cret\n")
	cfg := config.Redis{Address: "unix://" + path, Username: "argomesh", PasswordFile: password, Database: 3}
	client := start(t, cfg, "--port", "0", "--unixsocket", path, "--requirepass", "other", "--user", "argomesh", "on", ">s3cret", "~*", "+@all")
	if err := client.Set(t.Context(), "x", []byte("y"), time.Minute); err != nil {
		t.Error(err)
	}
	elsewhere := cfg
	elsewhere.Database = 0
	if got, err := open(t, elsewhere).Get(t.Context(), "x", 10); err != nil || len(got) != 0 {
		t.Errorf("another database: Get() = %q, %v", got, err)
	}
	for name, bad := range map[string]string{
		"wrong": file(t, "s3cre"), "empty": file(t, "\n"), "missing": filepath.Join(t.TempDir(), "none"),
		"too long": file(t, strings.Repeat("x", 5000)),
	} {
		cfg.PasswordFile = bad
		if _, err := open(t, cfg).Get(t.Context(), "x", 10); err == nil || strings.Contains(err.Error(), "s3cre") {
			t.Errorf("%s: Get() = %v", name, err)
		}
	}
}

func TestClientTLS(t *testing.T) {
	address := loopback.Address(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	cert, key := selfSigned(t)
	cfg := config.Redis{Address: address, TLS: config.RedisTLS{Enabled: true, CAFile: cert}}
	client := start(t, cfg, "--bind", "127.0.0.1", "--port", "0", "--tls-port", port,
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no")
	if err := client.Set(t.Context(), "x", []byte("y"), time.Minute); err != nil {
		t.Error(err)
	}
	stranger, _ := selfSigned(t)
	for name, settings := range map[string]config.RedisTLS{
		"another authority":       {Enabled: true, CAFile: stranger},
		"the system's":            {Enabled: true},
		"another name":            {Enabled: true, CAFile: cert, ServerName: "redis.example.org"},
		"no certificates":         {Enabled: true, CAFile: file(t, "x")},
		"no file":                 {Enabled: true, CAFile: filepath.Join(t.TempDir(), "none")},
		"without TLS":             {},
		"a file that is too long": {Enabled: true, CAFile: file(t, strings.Repeat("x", 2<<20))},
	} {
		cfg.TLS = settings
		if _, err := open(t, cfg).Get(t.Context(), "x", 10); err == nil {
			t.Errorf("%s: Get() succeeds", name)
		}
	}
}

// selfSigned makes a certificate for 127.0.0.1 that is its own authority.
func selfSigned(t *testing.T) (cert, key string) {
	t.Helper()
	return certkit.New(t, x509.Certificate{
		Subject: pkix.Name{CommonName: "redis"}, IsCA: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}).Files(t, t.TempDir())
}

// A Redis that takes connections and says nothing.
func TestClientReturnsWithItsContext(t *testing.T) {
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // nothing was served
	client := open(t, config.Redis{Address: "unix://" + path})
	get := func(ctx context.Context) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := client.Get(ctx, "x", 1)
			ended <- err
		}()
		return ended
	}
	unbounded := get(t.Context()) // ends with the client's own limit
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	select {
	case err := <-get(ctx):
		if err == nil {
			t.Error("Get() is answered")
		}
	case err := <-unbounded:
		t.Errorf("Get() = %v without a limit, before the one whose context ended", err)
	}
}
