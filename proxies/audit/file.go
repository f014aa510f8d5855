package audit

import (
	"errors"
	"fmt"
	"os"
)

// fileMode lets the owner's group read the records.
const fileMode = 0o640

// File appends to a file by its path. Anyone who rotates it may rename it, remove it
// or cut it: the next write goes to a file of that path, made again if need be.
// It is used by one goroutine at a time.
type File struct {
	path string
	file *os.File
}

// OpenFile opens the file, so that a path that cannot be had is known at the start.
func OpenFile(path string) (*File, error) {
	f := &File{path: path}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

func (f *File) open() error {
	file, err := os.OpenFile(f.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, fileMode)
	if err != nil {
		return fmt.Errorf("open the audit file: %w", err)
	}
	f.file = file
	return nil
}

// Write appends lines.
func (f *File) Write(lines []byte) (int, error) {
	if err := f.follow(); err != nil {
		return 0, err
	}
	return f.file.Write(lines)
}

// follow opens the path again when it no longer is the file that is open.
func (f *File) follow() error {
	if f.file != nil {
		there, err := os.Stat(f.path)
		mine, mineErr := f.file.Stat()
		if err == nil && mineErr == nil && os.SameFile(there, mine) {
			return nil
		}
	}
	old := f.file
	if err := f.open(); err != nil {
		return err
	}
	if old != nil {
		return old.Close()
	}
	return nil
}

// Close closes the file.
func (f *File) Close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}
