package workload

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spiffe/go-spiffe/v2/spiffeid"
	"golang.org/x/time/rate"
)

// reason is why an incoming handshake failed: the label of a metric, so the set
// is closed.
type reason string

const (
	reasonPlaintext     reason = "plaintext"      // it spoke a text protocol or HTTP/2 without TLS
	reasonGarbage       reason = "garbage"        // its first bytes are no TLS
	reasonTLS           reason = "tls"            // TLS, but no common version, protocol or the like
	reasonNoCertificate reason = "no_certificate" // it presented none
	reasonBadSVID       reason = "bad_svid"       // a certificate that is no X.509-SVID of a workload
	reasonExpired       reason = "expired"        // an SVID that is over, or not valid yet
	reasonNoBundle      reason = "no_bundle"      // an SVID of a trust domain we have no bundle for
	reasonUntrusted     reason = "untrusted"      // an SVID that no root of its trust domain signed
	reasonDenied        reason = "denied"         // a good SVID of someone unwelcome
	reasonSecondMethod  reason = "second_method"  // a certificate where tokens count
	reasonRefused       reason = "refused"        // the peer refused us, or our SVID
	reasonNotReady      reason = "not_ready"      // we have no valid SVID ourselves
	reasonClosed        reason = "closed"         // it left, as port scans and TCP probes do
	reasonTimeout       reason = "timeout"        // it was too slow
)

// failureReasons is the closed set.
var failureReasons = []reason{
	reasonPlaintext, reasonGarbage, reasonTLS, reasonNoCertificate, reasonBadSVID, reasonExpired, reasonNoBundle,
	reasonUntrusted, reasonDenied, reasonSecondMethod, reasonRefused, reasonNotReady, reasonClosed, reasonTimeout,
}

// peerError is what is wrong with a peer that speaks TLS.
type peerError struct {
	reason reason
	id     spiffeid.ID // what it claimed, may be zero
	err    error
}

func (e *peerError) Error() string { return e.err.Error() }
func (e *peerError) Unwrap() error { return e.err }

// verifyReason tells what an error of x509svid.Verify means.
func verifyReason(err error) reason {
	var (
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.Is(err, ErrNoBundle):
		return reasonNoBundle
	case errors.As(err, &unknown):
		return reasonUntrusted
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return reasonExpired // also "not yet valid"
	}
	return reasonBadSVID
}

// failureReason tells what the error of a server's handshake means.
func failureReason(err error) reason {
	var (
		peer    *peerError
		record  tls.RecordHeaderError
		timeout net.Error
		op      *net.OpError
	)
	switch {
	case errors.As(err, &peer):
		return peer.reason
	case errors.Is(err, ErrNotReady):
		return reasonNotReady
	case errors.As(err, &record):
		if printable(record.RecordHeader[:]) {
			return reasonPlaintext
		}
		return reasonGarbage
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	case errors.As(err, &op) && op.Op == "remote error": // how crypto/tls gives a peer's alert
		return reasonRefused
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe),
		errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return reasonClosed
	}
	return reasonTLS
}

// printable tells whether b can be the beginning of a text protocol.
func printable(b []byte) bool {
	for _, c := range b {
		if (c < ' ' || c > '~') && c != '\r' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}

// Each reason may be logged failuresPerSecond times a second on average, and
// failureBurst times at once.
const (
	failuresPerSecond = 1
	failureBurst      = 20
)

// failureLog counts failed handshakes and logs them, each reason within its own
// limit, so that a flood of one kind hides no other. Safe for concurrent use.
type failureLog struct {
	log   zerolog.Logger
	total *prometheus.CounterVec

	mu      sync.Mutex
	reasons map[reason]*failureLimit // guarded by mu; all of failureReasons
}

type failureLimit struct {
	limiter    *rate.Limiter
	suppressed int // not logged since the last line
}

func newFailureLog(log zerolog.Logger, total *prometheus.CounterVec) *failureLog {
	f := &failureLog{log: log, total: total, reasons: make(map[reason]*failureLimit, len(failureReasons))}
	for _, r := range failureReasons {
		f.reasons[r] = &failureLimit{limiter: rate.NewLimiter(failuresPerSecond, failureBurst)}
	}
	return f
}

// record notes that the handshake on conn failed with err.
func (f *failureLog) record(conn net.Conn, err error) {
	why := failureReason(err)
	f.total.WithLabelValues(string(why)).Inc()
	suppressed, ok := f.allow(why)
	if !ok {
		return
	}
	level := zerolog.WarnLevel
	if why == reasonClosed {
		level = zerolog.DebugLevel
	}
	event := f.log.WithLevel(level).Str("reason", string(why)).Stringer("peer", conn.RemoteAddr()).Err(err)
	var peer *peerError
	if errors.As(err, &peer) && !peer.id.IsZero() {
		event = event.Stringer("spiffe_id", peer.id)
	}
	if suppressed > 0 {
		event = event.Int("suppressed", suppressed)
	}
	event.Msg("handshake refused")
}

// allow reports whether a failure for this reason may be logged now, and how many
// were not since the last.
func (f *failureLog) allow(why reason) (suppressed int, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	limit := f.reasons[why]
	if !limit.limiter.Allow() {
		limit.suppressed++
		return 0, false
	}
	suppressed, limit.suppressed = limit.suppressed, 0
	return suppressed, true
}
