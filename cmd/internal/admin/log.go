package admin

import (
	"fmt"
	stdlog "log"
	"strings"

	"github.com/rs/zerolog"
)

// scrapeLog logs what promhttp cannot tell its caller.
type scrapeLog struct{ log zerolog.Logger }

// Println logs one failed collection.
func (l scrapeLog) Println(v ...any) {
	l.log.Warn().Str("error", strings.TrimSpace(fmt.Sprintln(v...))).Msg("metrics not collected")
}

// serverLog is net/http's log: failed reads and panics of handlers.
type serverLog struct{ log zerolog.Logger }

// Write logs one message.
func (l serverLog) Write(p []byte) (int, error) {
	l.log.Warn().Str("error", strings.TrimSpace(string(p))).Msg("admin request failed")
	return len(p), nil
}

func zerologStdlib(log zerolog.Logger) *stdlog.Logger { return stdlog.New(serverLog{log}, "", 0) }
