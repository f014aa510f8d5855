package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/redis/go-redis/v9"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/grpclog"
	"k8s.io/klog/v2"

	"github.com/argomesh/argomesh/cmd/internal/config"
)

// timeFormat is RFC 3339 in UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z"

// NewLogger returns a logger that writes to w as cfg says. Every message carries
// its time in UTC, with milliseconds.
func NewLogger(cfg config.Log, w io.Writer) zerolog.Logger {
	if cfg.Format == config.FormatConsole {
		w = zerolog.ConsoleWriter{Out: w, NoColor: true, TimeFormat: "15:04:05.000", TimeLocation: time.UTC}
	}
	return zerolog.New(zerolog.SyncWriter(w)).Level(zerolog.Level(cfg.Level)).Hook(
		zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
			e.Str(zerolog.TimestampFieldName, time.Now().UTC().Format(timeFormat))
		}))
}

// AdoptLibraryLogs sends what client-go (klog), gRPC, go-redis and users of
// log/slog log to log, with field "library". Their loggers are global, so a
// process calls it once, before it starts anything. Messages of gRPC and go-redis
// are about single connections, which we report ourselves, so errors of gRPC come
// as warnings and the rest at debug, and those of go-redis, which has no levels, at debug.
func AdoptLibraryLogs(log zerolog.Logger) {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(newSlogHandler(log, "client-go")), klog.ContextualLogger(true))
	slog.SetDefault(slog.New(newSlogHandler(log, "slog")))
	grpclog.SetLoggerV2(grpcLogger{log: log.With().Str("library", "grpc").Logger()})
	redis.SetLogger(redisLogger{log: log.With().Str("library", "go-redis").Logger()})
}

// redisLogger is go-redis' logger.
type redisLogger struct{ log zerolog.Logger }

// Printf logs the text as a field, since it is no constant message.
func (r redisLogger) Printf(_ context.Context, format string, args ...any) {
	r.log.Debug().Str("text", strings.TrimSpace(fmt.Sprintf(format, args...))).Msg("Redis message")
}

// slogHandler is zerolog's handler with our key for errors and our time.
type slogHandler struct{ slog.Handler }

func newSlogHandler(log zerolog.Logger, library string) slog.Handler {
	return slogHandler{zerolog.NewSlogHandler(log.With().Str("library", library).Logger())}
}

// Handle writes one record.
func (h slogHandler) Handle(ctx context.Context, record slog.Record) error {
	ours := slog.NewRecord(time.Time{}, record.Level, record.Message, record.PC) // the logger adds the time
	record.Attrs(func(a slog.Attr) bool {
		ours.AddAttrs(renameError(a))
		return true
	})
	return h.Handler.Handle(ctx, ours)
}

// WithAttrs returns a handler that adds attrs to every record.
func (h slogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	ours := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		ours[i] = renameError(a)
	}
	return slogHandler{h.Handler.WithAttrs(ours)}
}

// WithGroup returns a handler that puts later attributes under name.
func (h slogHandler) WithGroup(name string) slog.Handler {
	return slogHandler{h.Handler.WithGroup(name)}
}

// renameError gives errors the key they have in our own messages.
func renameError(a slog.Attr) slog.Attr {
	if a.Key == "err" {
		a.Key = zerolog.ErrorFieldName
	}
	return a
}

// grpcLogger is gRPC's logger. A dial that fails is a warning of gRPC's, and is told by who
// dials: so it comes at debug.
type grpcLogger struct{ log zerolog.Logger }

var _ grpclog.LoggerV2 = grpcLogger{}

func (g grpcLogger) Info(args ...any)   { g.write(zerolog.DebugLevel, fmt.Sprint(args...)) }
func (g grpcLogger) Infoln(args ...any) { g.write(zerolog.DebugLevel, fmt.Sprintln(args...)) }
func (g grpcLogger) Infof(format string, args ...any) {
	g.write(zerolog.DebugLevel, fmt.Sprintf(format, args...))
}
func (g grpcLogger) Warning(args ...any)   { g.write(zerolog.DebugLevel, fmt.Sprint(args...)) }
func (g grpcLogger) Warningln(args ...any) { g.write(zerolog.DebugLevel, fmt.Sprintln(args...)) }
func (g grpcLogger) Warningf(format string, args ...any) {
	g.write(zerolog.DebugLevel, fmt.Sprintf(format, args...))
}
func (g grpcLogger) Error(args ...any)   { g.write(zerolog.WarnLevel, fmt.Sprint(args...)) }
func (g grpcLogger) Errorln(args ...any) { g.write(zerolog.WarnLevel, fmt.Sprintln(args...)) }
func (g grpcLogger) Errorf(format string, args ...any) {
	g.write(zerolog.WarnLevel, fmt.Sprintf(format, args...))
}

// After the Fatal methods gRPC ends the process itself.
func (g grpcLogger) Fatal(args ...any)   { g.write(zerolog.ErrorLevel, fmt.Sprint(args...)) }
func (g grpcLogger) Fatalln(args ...any) { g.write(zerolog.ErrorLevel, fmt.Sprintln(args...)) }
func (g grpcLogger) Fatalf(format string, args ...any) {
	g.write(zerolog.ErrorLevel, fmt.Sprintf(format, args...))
}

// V reports whether messages of gRPC's verbosity l are wanted: none above 0.
func (g grpcLogger) V(l int) bool { return l <= 0 }

// write logs gRPC's text as a field, since it is no constant message.
func (g grpcLogger) write(level zerolog.Level, text string) {
	g.log.WithLevel(level).Str("text", strings.TrimSpace(text)).Msg("gRPC message")
}
