package cli

import (
	"io"
)

// Streams are where a command reads and writes.
type Streams struct {
	In  io.Reader
	Out io.Writer
	Err io.Writer
	// Interactive says that a person can answer on in.
	Interactive bool
}
