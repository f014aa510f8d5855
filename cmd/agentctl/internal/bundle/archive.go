package bundle

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

const (
	// maxArchive bounds the archive, in bytes.
	maxArchive = 20 << 20
	// maxFile bounds one file in it, in bytes: of a log its end.
	maxFile = 2 << 20
	// room is what the archive keeps for what says that the rest was left out.
	room = 256 << 10
)

// errFull is the end of an archive that has no room for a file.
var errFull = errors.New("the archive is full")

// archive writes files, redacted, until it is full.
type archive struct {
	redactor *Redactor
	now      time.Time
	limit    int64
	count    *counter
	zip      *gzip.Writer
	tar      *tar.Writer
}

func newArchive(w io.Writer, redactor *Redactor, now time.Time) *archive {
	a := &archive{redactor: redactor, now: now, limit: maxArchive, count: &counter{w: w}}
	a.zip = gzip.NewWriter(a.count)
	a.tar = tar.NewWriter(a.zip)
	return a
}

// add adds a file. What is over its limit is cut off at its begin.
func (a *archive) add(name string, content []byte) error {
	return a.write(name, content, a.limit-room)
}

// last adds a file for which there is room in any case.
func (a *archive) last(name string, content []byte) error { return a.write(name, content, a.limit) }

func (a *archive) write(name string, content []byte, most int64) error {
	if !fs.ValidPath(name) { // it would lead out of where the archive is opened
		return fmt.Errorf("a file of the bundle would be called %q, which leads out of it: report this as a bug", name)
	}
	content = a.redactor.Redact(content)
	if cut := len(content) - maxFile; cut > 0 {
		content = append(fmt.Appendf(nil, "(%d bytes before were left out)\n", cut), content[cut:]...)
	}
	if err := a.zip.Flush(); err != nil {
		return err
	}
	// What does not compress at all, with the headers of tar and gzip.
	if a.count.n+int64(len(content))+int64(len(content)/1000)+4096 > most {
		return errFull
	}
	header := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: a.now, Typeflag: tar.TypeReg}
	if err := a.tar.WriteHeader(header); err != nil {
		return err
	}
	if _, err := a.tar.Write(content); err != nil {
		return err
	}
	return a.tar.Flush()
}

func (a *archive) close() error { return errors.Join(a.tar.Close(), a.zip.Close()) }

// counter counts what is written.
type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
