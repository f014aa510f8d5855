package link

import (
	"time"

	"github.com/argomesh/argomesh/stream"
)

// Config holds what a Link needs. Fields without a stated default are required.
type Config struct {
	Side stream.Side
	Mode stream.Mode
	// Window bounds the unanswered entries. Zero means 512.
	Window int
	// WindowBytes bounds the data of unanswered entries: while so much is
	// unanswered nothing more is sent, so the last entry may exceed it. Zero means
	// 4 MiB.
	WindowBytes int
	// Heartbeat is the time between heartbeats. Zero means 10s. A peer that was
	// silent for two and a half of them is taken for gone.
	Heartbeat time.Duration
	// Guard says that absences are taken at their word only after a check, and
	// not many at once: see CheckHistory. It is the hub's, whichever side is the source.
	Guard bool
	// Verify says that the caller asks the API server about what the peer holds and the
	// caller's store never showed, before it counts as absent: see Unfamiliar.
	Verify bool
}

const (
	maxBatchBytes = 1 << 20
	// maxOpen and maxOpenBytes bound what a peer sends before it has our answers: more
	// than its own window lets it, of which the last event may exceed the bytes.
	maxOpen      = 2048
	maxOpenBytes = 8 << 20
	// maxUnsent bounds the results that wait for a connection that takes nothing.
	maxUnsent = 1 << 16
	// maxMissing bounds the entries that the peer holds and we do not have, since it
	// can invent some: many times the Applications of one Kubernetes cluster.
	maxMissing = 1 << 16
)

func (cfg Config) silence() time.Duration { return cfg.Heartbeat * 5 / 2 }
