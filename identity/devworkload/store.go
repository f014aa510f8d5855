package devworkload

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

const (
	caFile   = "authorities.json"
	lockFile = "authorities.lock"
)

// store keeps the generations of one trust domain: in memory when dir is empty,
// else in a file of dir that several processes may share. Its methods are
// called by one goroutine at a time.
type store struct {
	trustDomain spiffeid.TrustDomain
	dir         string
	// current is what was last read or written, and raw its bytes in the file.
	current generations
	raw     []byte
}

// openStore reads the generations, or makes the first.
func openStore(td spiffeid.TrustDomain, dir string, now time.Time) (*store, error) {
	s := &store{trustDomain: td, dir: dir}
	if dir == "" {
		first, err := newGenerations(td, now)
		if err != nil {
			return nil, err
		}
		s.current = first
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create ca directory: %w", err)
	}
	err := s.locked(func() error {
		err := s.load()
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		first, err := newGenerations(td, now)
		if err != nil {
			return err
		}
		return s.save(first)
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// refresh takes over what another process has written.
func (s *store) refresh() error {
	if s.dir == "" {
		return nil
	}
	return s.load()
}

// update replaces the generations by what change makes of the newest ones.
// Nothing is written when it reports false.
func (s *store) update(change func(generations) (generations, bool, error)) error {
	if s.dir == "" {
		next, changed, err := change(s.current)
		if err == nil && changed {
			s.current = next
		}
		return err
	}
	return s.locked(func() error {
		if err := s.load(); err != nil {
			return err
		}
		next, changed, err := change(s.current)
		if err != nil || !changed {
			return err
		}
		return s.save(next)
	})
}

func (s *store) load() error {
	path := filepath.Join(s.dir, caFile)
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read authorities: %w", err)
	}
	if bytes.Equal(raw, s.raw) {
		return nil
	}
	read, err := parseGenerations(raw)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if read.trustDomain != s.trustDomain {
		return fmt.Errorf("%s holds trust domain %s, not %s", path, read.trustDomain, s.trustDomain)
	}
	s.current, s.raw = read, raw
	return nil
}

// save puts next into place in one step, so that a reader never sees a part.
func (s *store) save(next generations) (err error) {
	raw, err := next.marshal()
	if err != nil {
		return err
	}
	temp, err := os.CreateTemp(s.dir, caFile+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("write authorities: %w", err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp.Name()) // best effort, the error at hand matters more
		}
	}()
	_, err = temp.Write(raw)
	if err = errors.Join(err, temp.Close()); err != nil {
		return fmt.Errorf("write authorities: %w", err)
	}
	if err = os.Rename(temp.Name(), filepath.Join(s.dir, caFile)); err != nil {
		return fmt.Errorf("write authorities: %w", err)
	}
	s.current, s.raw = next, raw
	return nil
}

// locked runs f while no other process that shares the directory is in its own.
func (s *store) locked(f func() error) error {
	lock, err := os.OpenFile(filepath.Join(s.dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("lock ca directory: %w", err)
	}
	defer func() { _ = lock.Close() }() // closing also unlocks; nothing was written
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock ca directory: %w", err)
	}
	return f()
}
