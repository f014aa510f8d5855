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
	// Width returns the columns of the terminal that Out is, 0 if it does not say; nil if Out is no
	// terminal.
	Width func() int
}
