package mirror

import "github.com/argomesh/argomesh/stream"

// historyState is what a connection knows of the history.
type historyState struct {
	checks  uint64 // that began, on all connections
	checked bool
	broken  bool
	now     stream.History // by the last check
	// answered is the number of the newest check by which the history goes on; zero
	// when there was none.
	answered uint64
	seen     stream.History // what Announce had told when that was asked for
	sent     uint64         // the highest resourceVersion that was sent
	// outdated is the last object that was sent and that the spoke has of a later
	// revision; the zero value is none.
	outdated sentObject
	// begins counts how often a new history could begin in place of the one with id
	// replaced.
	begins   int
	replaced string
	// stored is the newest token that the spoke said it keeps, and announced what it
	// was last told.
	stored    string
	announced stream.History
	// tokens counts those that the spoke was told, and echoes what it said of them.
	// confirm is closed when it has said something of all; nil while no one waits.
	tokens, echoes int
	confirm        chan struct{}
	// unsaved are on the spoke what the hub told and is not saved yet, the oldest first.
	unsaved []stream.History
}
