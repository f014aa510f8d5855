// Package exchange passes one HTTP call on and its answer back, which both ends of live
// access do: what of a message is taken, how long an answer may be, how its end is told
// from its loss, and what a caller reads that is refused.
package exchange

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/textproto"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rs/zerolog"
)

// Exchange passes one call on, and knows what became of it.
type Exchange struct {
	// Out takes the call.
	Out         http.RoundTripper
	Base        *url.URL // scheme, host and path before the target's
	Target      *url.URL
	BodyTimeout time.Duration // longest wait for the next bytes of the caller's body
	Log         zerolog.Logger
	// Outgoing finishes the header of the call.
	Outgoing func(http.Header)
	// Answer looks at the answer before it is passed on. After an error it is not.
	Answer func(*http.Response) error
	// Failed answers a call that got no answer.
	Failed func(w http.ResponseWriter, err error)

	// What follows is for who asks, once Run has returned.
	Status     int          // of the answer; 0 for none
	Sent       atomic.Int64 // bytes from the caller
	Received   atomic.Int64 // bytes to the caller
	CallerLost atomic.Bool  // the caller did not take or bring its bytes to the end
	PeerLost   atomic.Bool  // the other side did not
	// bodyDue is when the next bytes of the caller's body must be there, in nanoseconds
	// since 1970; 0 when none are waited for.
	bodyDue atomic.Int64
}

// Run passes r on and the answer back. It panics with http.ErrAbortHandler when the
// answer broke off, or must not be given: net/http has no other way to close a
// connection without ending the body, and its server takes that value for nothing else.
func (e *Exchange) Run(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	in := r.Clone(httptrace.WithClientTrace(r.Context(), boundEarly()))
	if r.Body != nil && r.Body != http.NoBody {
		in.Body = &callerBody{ReadCloser: r.Body, exchange: e, control: control}
	}
	proxy := httputil.ReverseProxy{
		Transport:     e.Out,
		FlushInterval: -1,
		BufferPool:    buffers,
		ErrorLog:      StdlibLog(e.Log),
		Rewrite: func(p *httputil.ProxyRequest) {
			u := *e.Target
			u.Scheme, u.Host = e.Base.Scheme, e.Base.Host
			if prefix := strings.TrimSuffix(e.Base.Path, "/"); prefix != "" {
				u.Path, u.RawPath = prefix+u.Path, prefix+u.EscapedPath()
			}
			p.Out.URL, p.Out.Host = &u, ""
			p.Out.Trailer = nil
			stripRequest(p.Out.Header)
			e.Outgoing(p.Out.Header)
		},
		ModifyResponse: func(res *http.Response) error {
			if err := e.Answer(res); err != nil {
				return err
			}
			if conn, ok := res.Body.(io.ReadWriteCloser); ok && res.StatusCode == http.StatusSwitchingProtocols {
				res.Body = &peerConn{ReadWriteCloser: conn, exchange: e}
			} else {
				res.Body = &peerBody{ReadCloser: res.Body, exchange: e}
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if due := e.bodyDue.Load(); due != 0 && time.Now().UnixNano() >= due {
				e.CallerLost.Store(true)
				w.Header().Set("Connection", "close")
				WriteStatus(&Meter{ResponseWriter: w, Exchange: e}, e.Target.Path, slowCaller())
				return
			}
			if r.Context().Err() != nil {
				e.CallerLost.Store(true)
				// Whatever was answered now could look like the end of a call that was cut off.
				panic(http.ErrAbortHandler)
			}
			e.Failed(&Meter{ResponseWriter: w, Exchange: e}, err)
		},
	}
	proxy.ServeHTTP(&Meter{ResponseWriter: w, Exchange: e}, in)
}

// maxEarly is how many answers before the final one are waited for. No one that we call
// has any use for one.
const maxEarly = 4

var errEarly = errors.New("too many answers before the final one")

// boundEarly bounds them. They are not passed on (see meter).
func boundEarly() *httptrace.ClientTrace {
	early := 0
	return &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		if early++; early > maxEarly {
			return errEarly
		}
		return nil
	}}
}

// buffers are what bodies are copied through.
var buffers = &bufferPool{}

// bufferBytes is the most that one Read passes on.
const bufferBytes = 32 << 10

type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[bufferBytes]byte); ok {
		return b[:]
	}
	return make([]byte, bufferBytes)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put((*[bufferBytes]byte)(b)) }

// callerBody is the body of a call. It counts, and does not wait for ever for a
// caller that says it will send more.
type callerBody struct {
	io.ReadCloser
	exchange *Exchange
	control  *http.ResponseController
}

func (b *callerBody) Read(p []byte) (int, error) {
	due := time.Now().Add(b.exchange.BodyTimeout)
	b.exchange.bodyDue.Store(due.UnixNano())
	_ = b.control.SetReadDeadline(due) // our connections have deadlines
	n, err := b.ReadCloser.Read(p)
	b.exchange.Sent.Add(int64(n))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err // net/http must not wait for the rest either
	}
	b.exchange.bodyDue.Store(0)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{}) // what follows may be as long as a watch
	}
	return n, err
}

// BoundRest bounds how long net/http waits for what is left of a body that no one
// read, before it takes the next call of the connection.
func BoundRest(w http.ResponseWriter, r *http.Request, timeout time.Duration) {
	if r.Body != http.NoBody {
		// As above; of a connection that was taken over it does nothing.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout))
	}
}

// peerBody is the body of an answer.
type peerBody struct {
	io.ReadCloser
	exchange *Exchange
}

func (b *peerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, context.Canceled) {
		b.exchange.PeerLost.Store(true)
	}
	return n, err
}

// peerConn is the connection behind an answer that switched protocols.
type peerConn struct {
	io.ReadWriteCloser
	exchange  *Exchange
	closed    atomic.Bool // by us
	peerEnded atomic.Bool // what is written is dropped
}

func (c *peerConn) Read(p []byte) (int, error) {
	n, err := c.ReadWriteCloser.Read(p)
	c.recordLoss(err)
	return n, err
}

// Write drops what can no longer be read by a peer that has ended its own direction,
// as that of a command that ended before its caller had sent all. Its last bytes may still be on
// their way to the caller: an error would end the copying of both directions.
func (c *peerConn) Write(p []byte) (int, error) {
	if c.peerEnded.Load() {
		return len(p), nil
	}
	n, err := c.ReadWriteCloser.Write(p)
	if errors.Is(err, syscall.EPIPE) { // and not ECONNRESET, by which bytes are lost
		c.peerEnded.Store(true)
		return len(p), nil
	}
	c.recordLoss(err)
	return n, err
}

// recordLoss records an error that is not our own doing.
func (c *peerConn) recordLoss(err error) {
	if err != nil && !errors.Is(err, io.EOF) && !c.closed.Load() {
		c.exchange.PeerLost.Store(true)
	}
}

// CloseWrite ends our direction alone.
func (c *peerConn) CloseWrite() error {
	if c.peerEnded.Load() {
		return nil
	}
	return CloseWrite(c.ReadWriteCloser)
}

// Close ends both.
func (c *peerConn) Close() error {
	c.closed.Store(true)
	return c.ReadWriteCloser.Close()
}

// errNoHalfClose ends both directions, where one cannot be ended alone.
var errNoHalfClose = errors.New("the connection cannot be half closed")

// CloseWrite ends our direction of w, a connection or what passes it on.
func CloseWrite(w any) error {
	if half, ok := w.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errNoHalfClose
}

// Meter is the way back to the caller.
type Meter struct {
	http.ResponseWriter
	Exchange *Exchange
}

// Unwrap is for http.ResponseController.
func (m *Meter) Unwrap() http.ResponseWriter { return m.ResponseWriter }

// WriteHeader notes the status. What comes before the final one is not passed on: no one
// has checked it.
func (m *Meter) WriteHeader(code int) {
	if code < http.StatusOK {
		return
	}
	m.Exchange.Status = code
	m.ResponseWriter.WriteHeader(code)
}

func (m *Meter) Write(p []byte) (int, error) {
	n, err := m.ResponseWriter.Write(p)
	m.Exchange.Received.Add(int64(n))
	if err != nil {
		m.Exchange.CallerLost.Store(true)
	}
	return n, err
}

// Hijack gives the connection of a call whose upgrade was granted.
func (m *Meter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(m.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	m.Exchange.Status = http.StatusSwitchingProtocols
	early, err := buffered.Peek(buffered.Reader.Buffered())
	if err != nil {
		return nil, nil, errors.Join(err, conn.Close())
	}
	return &callerConn{Conn: conn, early: bytes.NewReader(bytes.Clone(early)), exchange: m.Exchange}, buffered, nil
}

// callerConn is the caller's connection after its upgrade.
type callerConn struct {
	net.Conn
	early    *bytes.Reader // what net/http read before it handed the connection over
	exchange *Exchange
	closed   atomic.Bool // by us
}

func (c *callerConn) Read(p []byte) (int, error) {
	var n int
	var err error
	if c.early.Len() > 0 {
		n, err = c.early.Read(p)
	} else {
		n, err = c.Conn.Read(p)
	}
	c.exchange.Sent.Add(int64(n))
	c.recordLoss(err)
	return n, err
}

func (c *callerConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.exchange.Received.Add(int64(n))
	c.recordLoss(err)
	return n, err
}

// recordLoss records an error that is not our own doing.
func (c *callerConn) recordLoss(err error) {
	if err != nil && !errors.Is(err, io.EOF) && !c.closed.Load() {
		c.exchange.CallerLost.Store(true)
	}
}

// CloseWrite ends our direction alone.
func (c *callerConn) CloseWrite() error { return CloseWrite(c.Conn) }

// Close ends the connection. When the other side was lost it is aborted, where a
// connection can be: what was lost must not look finished.
func (c *callerConn) Close() error {
	c.closed.Store(true)
	if c.exchange.PeerLost.Load() {
		return Abort(c.Conn)
	}
	return c.Conn.Close()
}

// Abort closes a connection so that its peer sees a failure rather than an end. A
// unix socket has no way to say so.
func Abort(conn net.Conn) error {
	switch c := conn.(type) {
	case interface{ Abort() error }:
		return c.Abort()
	case interface{ SetLinger(seconds int) error }:
		_ = c.SetLinger(0) // the connection is closed in any case
	}
	return conn.Close()
}
