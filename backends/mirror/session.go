package mirror

import (
	"time"

	sessions "github.com/argomesh/argomesh/backends/session"
	"github.com/argomesh/argomesh/stream"
)

// session is the connection of the moment as the loop sees it.
type session struct {
	*sessions.Session
	peer  Peer
	queue []stream.Message  // flushed, not yet taken by the connection
	info  *stream.SpokeInfo // of SetSpokeInfo, what is queued or was sent
	// unsupportedLogged says that an event which we do not know was logged.
	unsupportedLogged bool
	// heartbeatSeen says that the peer sent a heartbeat.
	heartbeatSeen bool
}

// waits reports whether what the peer of a session sent waits here.
func (s *session) waits() bool { return s != nil && s.peer.Waits != nil && s.peer.Waits() }

// sendSpokeInfo queues what SetSpokeInfo was last told, unless this session has it.
func (s *session) sendSpokeInfo(info *stream.SpokeInfo) {
	if info == s.info {
		return
	}
	s.info = info
	now := *info
	now.SentAt = time.Now()
	s.queue = append(s.queue, now)
}
