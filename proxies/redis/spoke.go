package redis

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/argomesh/argomesh/stream"
)

const (
	// maxSpokeKeys bounds the keys of one command.
	maxSpokeKeys = 256
	// maxSpokeChannels bounds the subscriptions of one connection.
	maxSpokeChannels = 16384
	// spokeIdle ends a connection on which nothing is asked: longer than the hub keeps
	// one, so that the hub, which is about to use it, is who ends it.
	spokeIdle = 2 * time.Minute
	// judgeEvery is how often the format of the spoke's keys is looked at while keys
	// are missing, judgeSteps and judgeCount how many keys at most.
	judgeEvery = 30 * time.Second
	judgeSteps = 20
	judgeCount = 1000
)

// SpokeConfig holds what a Spoke needs. Fields without a stated default are required.
type SpokeConfig struct {
	// Dial opens a connection to the spoke's Redis, on which nothing was said yet.
	Dial func(context.Context) (net.Conn, error)
	// Credentials returns who we are there; nothing for nobody.
	Credentials func(context.Context) (username, password string, err error)
	// Database is the number of Argo CD's.
	Database int
	// Version is that of the cache of the spoke's Argo CD, and Plain says that it does
	// not compress.
	Version string
	Plain   bool
	// Allow says which Applications the hub may see. It does not block.
	Allow   func(Instance) bool
	Metrics prometheus.Registerer
	Log     zerolog.Logger
	// MaxConnections bounds the hub's connections; more are refused. Zero means 256.
	MaxConnections int
	// AnswerTimeout bounds the wait for the spoke's Redis. Zero means 10s.
	AnswerTimeout time.Duration
}

// Spoke is the spoke's end: it lets the hub read and subscribe to what Argo CD keeps of
// Applications, and do nothing else. The credentials of the spoke's Redis stay here.
type Spoke struct {
	cfg     SpokeConfig
	metrics *spokeMetrics
	open    chan struct{}

	mu sync.Mutex // guards what follows
	// other is the format in which the spoke's keys are, when it is not ours; judged is
	// when that was looked at.
	other  string
	judged time.Time
}

// NewSpoke checks cfg and starts nothing.
func NewSpoke(cfg SpokeConfig) (*Spoke, error) {
	if cfg.Dial == nil || cfg.Credentials == nil || cfg.Allow == nil {
		return nil, errors.New("redis of the spoke: dial, credentials and allow are required")
	}
	if !isFormat(cfg.Version) || cfg.Database < 0 || cfg.MaxConnections < 0 || cfg.AnswerTimeout < 0 {
		return nil, errors.New("redis of the spoke: version, database or limits cannot be used")
	}
	cfg.MaxConnections = cmp.Or(cfg.MaxConnections, 256)
	cfg.AnswerTimeout = cmp.Or(cfg.AnswerTimeout, 10*time.Second)
	m, err := newSpokeMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("redis of the spoke: metrics: %w", err)
	}
	return &Spoke{cfg: cfg, metrics: m, open: make(chan struct{}, cfg.MaxConnections)}, nil
}

// format is how the keys end.
func (s *Spoke) format() string {
	if s.cfg.Plain {
		return s.cfg.Version
	}
	return s.cfg.Version + ".gz"
}

// Serve serves one connection of the hub until it ends. An error before anything is
// read of conn is that the spoke's Redis cannot be used.
func (s *Spoke) Serve(ctx context.Context, conn net.Conn) error {
	select {
	case s.open <- struct{}{}:
		defer func() { <-s.open }()
	default:
		return fmt.Errorf("redis of the spoke: %d connections are open: %w", s.cfg.MaxConnections, stream.ErrUnavailable)
	}
	s.metrics.connections.Inc()
	defer s.metrics.connections.Dec()
	session := &spokeSession{spoke: s}
	opening, cancel := context.WithTimeout(ctx, s.cfg.AnswerTimeout)
	err := session.connect(opening)
	cancel()
	if err != nil {
		return fmt.Errorf("redis of the spoke: %w", err)
	}
	session.hub = &patient{Conn: conn, read: spokeIdle, write: s.cfg.AnswerTimeout}
	stop := context.AfterFunc(ctx, func() {
		_ = session.redis.Close() // it interrupts what is under way there
		session.hub.interrupt()   // and here
	})
	defer func() {
		if stop() {
			_ = session.redis.Close() // all was said
		}
	}()
	session.in, session.out = newWire(session.hub), bufio.NewWriterSize(session.hub, maxLine)
	return session.serve()
}

// spokeSession is one connection of the hub with its own to the spoke's Redis.
type spokeSession struct {
	spoke     *Spoke
	redis     *patient
	fromRedis wire
	hub       *patient
	in        wire

	mu  sync.Mutex // guards out, once there are two who write
	out *bufio.Writer
}

// connect opens the connection to Redis and says who we are.
func (c *spokeSession) connect(ctx context.Context) error {
	cfg := c.spoke.cfg
	conn, err := cfg.Dial(ctx)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() }) // it interrupts what follows
	c.redis = &patient{Conn: conn, read: cfg.AnswerTimeout, write: cfg.AnswerTimeout}
	c.fromRedis = newWire(c.redis)
	err = c.introduce(ctx)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close() // the error is known
	}
	return err
}

func (c *spokeSession) introduce(ctx context.Context) error {
	username, password, err := c.spoke.cfg.Credentials(ctx)
	if err != nil {
		return err
	}
	var commands [][]string
	switch {
	case username != "":
		commands = append(commands, []string{"AUTH", username, password})
	case password != "":
		commands = append(commands, []string{"AUTH", password})
	}
	if c.spoke.cfg.Database > 0 {
		commands = append(commands, []string{"SELECT", strconv.Itoa(c.spoke.cfg.Database)})
	}
	for _, command := range append(commands, []string{"PING"}) {
		if err := c.ask(command...); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(command[0]), err)
		}
		if _, _, err := c.fromRedis.small(); err != nil {
			return fmt.Errorf("%s: %w", strings.ToLower(command[0]), err)
		}
	}
	return nil
}

// redisError is that Redis answers with an error.
type redisError string

func (e redisError) Error() string { return "redis says " + string(e) }

// ask sends a command and waits until its answer begins, which is no error.
func (c *spokeSession) ask(args ...string) error {
	if _, err := c.redis.Write(encodeCommand(args...)); err != nil {
		return err
	}
	first, err := c.fromRedis.Peek(1)
	if err != nil {
		return unexpected(err)
	}
	if first[0] != '-' {
		return nil
	}
	line, err := c.fromRedis.line()
	if err != nil {
		return err
	}
	code, _, _ := strings.Cut(string(line[1:]), " ")
	return redisError(code) // the rest may name users
}

// Results of commands, as the metrics have them.
const (
	resultOK     = "ok"
	resultDenied = "denied"
	resultFormat = "format"
	resultFailed = "failed"
)

func (c *spokeSession) count(result string) {
	c.spoke.metrics.commands.WithLabelValues(result).Inc()
}

// serve takes reads until the first subscription.
func (c *spokeSession) serve() error {
	for {
		cmd, err := c.in.command()
		if err != nil {
			return ended(err)
		}
		if cmd.left > 0 {
			return errTooLong
		}
		name := cmd.args[0]
		switch name {
		case "PING":
			c.writeLocked([]byte("+PONG\r\n"))
		case "SUBSCRIBE", "UNSUBSCRIBE":
			return c.subscriptions(cmd)
		case "GET", "MGET", "EXISTS", "TTL":
			if err := c.read(name, cmd.args[1:]); err != nil {
				return err
			}
		default:
			c.count(resultDenied)
			c.writeLocked(encodeError(spokeDenied))
		}
		if err := c.flush(); err != nil {
			return err
		}
	}
}

// ended is the end of what the hub says: nil when it said so, or said nothing more.
func ended(err error) error {
	var timeout net.Error
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrClosedPipe) || errors.Is(err, io.EOF) || errors.As(err, &timeout) && timeout.Timeout() {
		return nil
	}
	return err
}

func (c *spokeSession) writeLocked(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = c.out.Write(b) // Flush returns the same error
}

func (c *spokeSession) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Flush()
}

// judge returns what the hub is told instead of an answer about a key; empty when it
// may have one.
func (s *Spoke) judge(text, format string) (refusal, result string) {
	k, ok := ParseKey(text)
	switch {
	case !ok || !s.cfg.Allow(k.Instance):
		return spokeDenied, resultDenied
	case k.Format != format:
		return spokeFormat + " " + format, resultFormat
	}
	return "", resultOK
}

// read answers one read.
func (c *spokeSession) read(name string, keys []string) error {
	if n := len(keys); n == 0 || n > maxSpokeKeys || n > 1 && (name == "GET" || name == "TTL") {
		c.count(resultDenied)
		c.writeLocked(encodeError(spokeDenied))
		return nil
	}
	for _, key := range keys {
		if refusal, result := c.spoke.judge(key, c.spoke.format()); refusal != "" {
			c.count(result)
			c.writeLocked(encodeError(refusal))
			return nil
		}
	}
	err := c.ask(append([]string{name}, keys...)...)
	var refused redisError
	switch {
	case errors.As(err, &refused):
		c.count(resultFailed)
		c.spoke.cfg.Log.Warn().Err(err).Msg("redis of the spoke refuses a read")
		c.writeLocked(encodeError(spokeAway))
		return nil
	case err != nil:
		c.count(resultFailed)
		c.writeLocked(encodeError(spokeAway))
		return errors.Join(fmt.Errorf("redis of the spoke: %w", err), c.flush())
	}
	if name == "GET" {
		if null, err := c.fromRedis.Peek(3); err != nil {
			return unexpected(err)
		} else if string(null) == "$-1" {
			return c.missing()
		}
	}
	c.count(resultOK)
	return c.fromRedis.copyValues(c.out, 1, false)
}

// missing answers that there is no such key, unless all are in another format.
func (c *spokeSession) missing() error {
	if _, err := c.fromRedis.line(); err != nil {
		return err
	}
	other, err := c.otherFormat()
	if err != nil {
		return err
	}
	if other != "" {
		c.count(resultFormat)
		c.writeLocked(encodeError(spokeFormat + " " + other))
		return nil
	}
	c.count(resultOK)
	c.writeLocked(appendNull(nil, false))
	return nil
}

// otherFormat returns the format of the spoke's keys when none is in ours; empty when
// there is one, or none at all. It looks at most every judgeEvery.
func (c *spokeSession) otherFormat() (string, error) {
	s := c.spoke
	s.mu.Lock()
	if time.Since(s.judged) < judgeEvery {
		defer s.mu.Unlock()
		return s.other, nil
	}
	s.judged = time.Now() // others go on with what was seen last
	before := s.other
	s.mu.Unlock()
	other, err := c.look()
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	s.other = other
	s.mu.Unlock()
	switch {
	case other != "":
		s.metrics.mismatch.Set(1)
		if before != other {
			s.cfg.Log.Warn().Str("found", other).Str("configured", s.format()).
				Msg("argo cd keeps its cache in another format: set redis.cache_version and redis.compression")
		}
	default:
		s.metrics.mismatch.Set(0)
	}
	return other, nil
}

// look goes through the keys of Applications.
func (c *spokeSession) look() (other string, err error) {
	cursor := "0"
	for range judgeSteps {
		if err := c.ask("SCAN", cursor, "MATCH", "app|*", "COUNT", strconv.Itoa(judgeCount)); err != nil {
			var refused redisError
			if errors.As(err, &refused) {
				return "", nil // without that right nobody can tell
			}
			return "", err
		}
		if n, err := c.fromRedis.collection('*'); err != nil || n != 2 {
			return "", errors.Join(errProtocol, err)
		}
		if cursor, _, err = c.fromRedis.small(); err != nil {
			return "", err
		}
		n, err := c.fromRedis.collection('*')
		if err != nil {
			return "", err
		}
		ours := false
		for range n {
			text, _, err := c.fromRedis.small()
			if err != nil {
				return "", err
			}
			if k, ok := ParseKey(text); ok {
				ours = ours || k.Format == c.spoke.format()
				other = k.Format
			}
		}
		if ours {
			return "", nil
		}
		if cursor == "0" {
			return other, nil
		}
	}
	return other, nil
}

// subscriptions serves a connection from its first subscription on.
func (c *spokeSession) subscriptions(cmd command) error {
	c.redis.read = spokeIdle // the hub asks for a sign of life more often
	var g errgroup.Group
	broken := func(err error) error {
		// The other direction has nobody to serve.
		_ = c.redis.Close() // it interrupts what is under way there
		c.hub.interrupt()
		return err
	}
	left := false
	g.Go(func() error {
		err := c.hearHub(cmd)
		left = err == nil
		return broken(err)
	})
	g.Go(func() error { return broken(c.hearRedis()) })
	err := g.Wait()
	if left {
		return nil
	}
	return err
}

// hearHub passes subscriptions on.
func (c *spokeSession) hearHub(cmd command) error {
	channels := map[string]struct{}{}
	for {
		if cmd.left > 0 {
			return errTooLong
		}
		switch name := cmd.args[0]; {
		case name == "PING" && len(cmd.args) == 1:
		case (name == "SUBSCRIBE" || name == "UNSUBSCRIBE") && len(cmd.args) == 2:
			channel := cmd.args[1]
			if _, ok := ParseKey(channel); !ok {
				c.count(resultDenied)
				return fmt.Errorf("%w: a channel that is none", errProtocol)
			}
			if name == "UNSUBSCRIBE" {
				delete(channels, channel)
				break
			}
			refusal, result := c.spoke.judge(channel, c.spoke.cfg.Version)
			if _, had := channels[channel]; !had && len(channels) >= maxSpokeChannels && refusal == "" {
				refusal, result = spokeDenied, resultDenied
			}
			c.count(result)
			if refusal != "" {
				c.writeLocked(encodeError(refusal + " " + channel))
				if err := c.flush(); err != nil {
					return err
				}
				cmd.args = nil
			} else {
				channels[channel] = struct{}{}
			}
		default:
			c.count(resultDenied)
			return fmt.Errorf("%w: no command for a connection with subscriptions", errProtocol)
		}
		if cmd.args != nil {
			if _, err := c.redis.Write(encodeCommand(cmd.args...)); err != nil {
				return err
			}
		}
		var err error
		if cmd, err = c.in.command(); err != nil {
			return ended(err)
		}
	}
}

// hearRedis passes on what Redis tells.
func (c *spokeSession) hearRedis() error {
	for {
		if _, err := c.fromRedis.Peek(1); err != nil {
			return unexpected(err)
		}
		if err := c.pass(); err != nil {
			return err
		}
	}
}

func (c *spokeSession) pass() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.fromRedis.copyValues(c.out, 1, false); err != nil {
		return err
	}
	if c.fromRedis.Buffered() > 0 {
		return nil
	}
	return c.out.Flush()
}
