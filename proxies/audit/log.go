package audit

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"go.opentelemetry.io/otel/attribute"
	otellog "go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/log/noop"
)

const (
	// batchBytes is how much is gathered for one write, unless one record is longer.
	batchBytes = 64 << 10
	// retryTime is the wait before what could not be written is written again.
	retryTime = time.Second
	// complaintTime is how often it is logged that the writer does not take records.
	complaintTime = time.Minute

	scope = "github.com/argomesh/argomesh/proxies/audit"
	// eventName is the kind of event that a record is to OpenTelemetry.
	eventName = "io.argomesh.live_access.call"
)

// Config holds what a Log needs. Fields without a stated default are required.
type Config struct {
	// Process names this process among those that write records.
	Process string
	// Writer takes lines of JSON, one or more whole ones in each call. A write that
	// fails is repeated. Nil writes none.
	Writer io.Writer
	// Provider takes the records as OpenTelemetry's log records. It must not block;
	// the SDK's batch processor does not. Nil sends none.
	Provider otellog.LoggerProvider
	// Queue is the number of records that may wait for Writer. Zero means 8192.
	Queue int
	// DrainTimeout bounds how long Run waits for the last records. Zero means 5s.
	DrainTimeout time.Duration
	Metrics      prometheus.Registerer
	Log          zerolog.Logger
}

// Log writes records. Its methods may be called concurrently.
type Log struct {
	cfg     Config
	process string
	events  otellog.Logger
	metrics *metrics
	lines   bool // there is a Writer
	calls   atomic.Uint64

	mu    sync.Mutex // guards seq, and that records are queued by it
	seq   uint64
	queue chan Record
}

// New checks cfg and starts nothing.
func New(cfg Config) (*Log, error) {
	if cfg.Process == "" || cfg.Metrics == nil {
		return nil, errors.New("audit: process and metrics are required")
	}
	if cfg.Queue < 0 || cfg.DrainTimeout < 0 {
		return nil, errors.New("audit: queue and drain timeout must not be negative")
	}
	lines := cfg.Writer != nil
	if !lines {
		cfg.Writer = io.Discard
	}
	if cfg.Provider == nil {
		cfg.Provider = noop.NewLoggerProvider()
	}
	if cfg.Queue == 0 {
		cfg.Queue = 8192
	}
	if cfg.DrainTimeout == 0 {
		cfg.DrainTimeout = 5 * time.Second
	}
	start := make([]byte, 8)
	if _, err := rand.Read(start); err != nil {
		return nil, fmt.Errorf("audit: name this start: %w", err)
	}
	l := &Log{
		cfg: cfg, process: cfg.Process + "/" + hex.EncodeToString(start), lines: lines,
		events: cfg.Provider.Logger(scope),
		queue:  make(chan Record, cfg.Queue),
	}
	cfg.Log = cfg.Log.Sample(&zerolog.BurstSampler{Burst: 1, Period: complaintTime})
	l.cfg.Log = cfg.Log
	var err error
	l.metrics, err = newMetrics(cfg.Metrics, func() float64 { return float64(len(l.queue)) })
	if err != nil {
		return nil, fmt.Errorf("audit: metrics: %w", err)
	}
	return l, nil
}

// Call returns a new number for the records of one call.
func (l *Log) Call() uint64 { return l.calls.Add(1) }

// Write numbers r and hands it over. It does not wait: with a full queue r is lost
// and counted, and its number with it. The trace of ctx, if any, is that of r.
func (l *Log) Write(ctx context.Context, r Record) {
	r.clip()
	r.Time = r.Time.UTC()
	r.Process = l.process
	r.Seq = l.enqueue(&r)
	var event otellog.Record
	event.SetEventName(eventName)
	event.SetTimestamp(r.Time)
	event.SetSeverity(otellog.SeverityInfo)
	event.SetBody(attribute.StringValue("live access"))
	event.AddAttributes(r.attributes()...)
	l.events.Emit(ctx, event)
}

// enqueue numbers r and queues it, both in one step, so that numbers in the file
// only grow.
func (l *Log) enqueue(r *Record) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	r.Seq = l.seq
	if !l.lines {
		return l.seq
	}
	select {
	case l.queue <- *r:
	default:
		l.metrics.records.WithLabelValues(resultDropped).Inc()
	}
	return l.seq
}

// Run writes records until ctx is done, and then those that still wait, for as long
// as DrainTimeout. It returns an error when not all could be written. A write that
// blocks then, and cannot be ended, is left behind. Run is called once.
func (l *Log) Run(ctx context.Context) error {
	written := make(chan error, 1)
	go func() { written <- l.write(ctx) }()
	<-ctx.Done()
	timeout := time.NewTimer(l.cfg.DrainTimeout)
	defer timeout.Stop()
	select {
	case err := <-written:
		return err
	case <-timeout.C:
		return fmt.Errorf("audit: the writer took none of the last records for %v", l.cfg.DrainTimeout)
	}
}

func (l *Log) write(ctx context.Context) error {
	var batch bytes.Buffer
	for {
		batch.Reset()
		select {
		case r := <-l.queue:
			count := l.gather(&batch, r)
			if err := l.flush(ctx, batch.Bytes(), count); err != nil {
				return err
			}
		case <-ctx.Done():
			select {
			case r := <-l.queue:
				count := l.gather(&batch, r)
				if err := l.flush(ctx, batch.Bytes(), count); err != nil {
					return err
				}
			default:
				return nil
			}
		}
	}
}

// gather puts first and what else waits into batch, and returns how many they are.
func (l *Log) gather(batch *bytes.Buffer, first Record) (count int) {
	encoder := json.NewEncoder(batch)
	encoder.SetEscapeHTML(false)
	next := first
	for {
		if err := encoder.Encode(next); err != nil {
			// A Record holds only what JSON can say, so this is for a float that is none.
			l.cfg.Log.Error().Err(err).Msg("cannot encode an audit record")
			l.metrics.records.WithLabelValues(resultDropped).Inc()
		} else {
			count++
		}
		if batch.Len() >= batchBytes {
			return count
		}
		select {
		case next = <-l.queue:
		default:
			return count
		}
	}
}

// flush writes lines until the writer took them. Once ctx is done it tries once.
func (l *Log) flush(ctx context.Context, lines []byte, count int) error {
	for {
		n, err := l.cfg.Writer.Write(lines)
		if err == nil && n < len(lines) {
			err = io.ErrShortWrite
		}
		if err == nil {
			l.metrics.records.WithLabelValues(resultWritten).Add(float64(count))
			return nil
		}
		l.metrics.failures.Inc()
		l.cfg.Log.Error().Err(err).Int("waiting", len(l.queue)).Msg("audit records cannot be written")
		lines = unwritten(lines, n)
		retry := time.NewTimer(retryTime)
		select {
		case <-retry.C:
		case <-ctx.Done():
			retry.Stop()
			if _, err = l.cfg.Writer.Write(lines); err != nil {
				lost := bytes.Count(bytes.TrimLeft(lines, "\n"), []byte("\n"))
				l.metrics.records.WithLabelValues(resultDropped).Add(float64(lost + len(l.queue)))
				return fmt.Errorf("audit: %d records were not written: %w", lost+len(l.queue), err)
			}
			l.metrics.records.WithLabelValues(resultWritten).Add(float64(count))
			return nil
		}
	}
}

// unwritten returns what is to be written after n bytes of lines were: a line that is
// there in part is begun again on a line of its own.
func unwritten(lines []byte, n int) []byte {
	n = max(0, min(n, len(lines)))
	whole := bytes.LastIndexByte(lines[:n], '\n') + 1
	if whole == n {
		return lines[n:]
	}
	return append([]byte{'\n'}, lines[whole:]...)
}

const (
	resultWritten = "written"
	resultDropped = "dropped"
)

type metrics struct {
	records  *prometheus.CounterVec
	failures prometheus.Counter
}

func newMetrics(r prometheus.Registerer, waiting func() float64) (*metrics, error) {
	m := &metrics{
		records: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "argomesh_audit_records_total",
			Help: "Audit records, by what became of their line: written, or dropped since too many waited.",
		}, []string{"result"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "argomesh_audit_write_failures_total", Help: "Writes of audit records that failed. They are repeated.",
		}),
	}
	queued := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "argomesh_audit_queue_records", Help: "Audit records that wait to be written.",
	}, waiting)
	for _, c := range []prometheus.Collector{m.records, m.failures, queued} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	m.records.WithLabelValues(resultWritten)
	m.records.WithLabelValues(resultDropped) // so that the first loss is seen as a change
	return m, nil
}
