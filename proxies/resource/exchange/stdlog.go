package exchange

import (
	stdlog "log" //nolint:depguard // net/http has no other way to say what it met
	"strings"

	"github.com/rs/zerolog"
)

// StdlibLog is log for net/http, which writes about single connections: at debug.
func StdlibLog(log zerolog.Logger) *stdlog.Logger { return stdlog.New(serverLog{log}, "", 0) }

type serverLog struct{ log zerolog.Logger }

// Write logs the text as a field, since it is no constant message.
func (s serverLog) Write(text []byte) (int, error) {
	event := s.log.Debug()
	if strings.Contains(string(text), "panic serving") {
		event = s.log.Error() // a fault of ours
	}
	event.Str("text", strings.TrimSpace(string(text))).Msg("HTTP message")
	return len(text), nil
}
