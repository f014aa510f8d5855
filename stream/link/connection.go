package link

import "time"

// stage is how far a connection has come.
type stage uint8

const (
	away stage = iota // there is none
	open
	// digested is after the peer said which collections it takes.
	digested
)

// connection is what is known of the present connection.
type connection struct {
	stage        stage
	id           string
	lastReceived time.Time // when something last came from the peer
	beat         time.Time // when the next heartbeat is due
	checks       bool      // Connected.SeenDeletes
}
