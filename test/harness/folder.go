//go:build linux

package harness

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// checkOurs returns an error when dir is anything but a folder of this user to which
// no one else may write: its records say which processes to kill. It may not exist.
func checkOurs(dir string) error {
	info, err := os.Lstat(filepath.Clean(dir)) // with a slash at its end a link would be followed
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	if err := judgeFolder(info.Mode(), int(owner), os.Geteuid()); err != nil {
		return fmt.Errorf("work folder %s %w", dir, err)
	}
	return nil
}

// judgeFolder returns what is wrong with a work folder of user owner for user self.
func judgeFolder(mode fs.FileMode, owner, self int) error {
	switch {
	case !mode.IsDir():
		return errors.New("is no folder, or a link to one: name another")
	case owner != self:
		return errors.New("belongs to another user: name another")
	case mode.Perm()&0o022 != 0:
		return errors.New("may be written by others: remove it, or name another")
	}
	return nil
}

// checkUsed returns an error when dir holds files and was never a work folder. It may
// not exist.
func checkUsed(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	isLock := func(e os.DirEntry) bool { return e.Name() == lockFile }
	if len(entries) > 0 && !slices.ContainsFunc(entries, isLock) {
		return fmt.Errorf("%s holds other files: name a folder that is empty or does not exist", dir)
	}
	return nil
}

// lock waits for the lock of the work folder, which the caller closes. It makes the
// folder if there is none, or its last user has removed it.
func lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, lockFile)
	for {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if err := checkOurs(dir); err != nil {
			return nil, err
		}
		file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the folder was removed in between
		}
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(err, file.Close())
		}
		held, err := file.Stat()
		if err != nil {
			return nil, errors.Join(err, file.Close())
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(held, now) {
			return file, nil
		}
		_ = file.Close() // the lock of a folder that was removed
	}
}

// CleanUp kills the processes that a program left which died while it used the work
// folder, and removes the folder, if there is one. While a program that lives uses it,
// it fails with ErrRunning and leaves all as it is. Pids that now belong to other
// processes are not touched.
func CleanUp(dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := checkOurs(dir); err != nil {
		return err
	}
	if err := checkUsed(dir); err != nil {
		return err
	}
	held, err := lock(dir)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }() // unlocks; nothing was written
	if err := checkFree(dir); err != nil {
		return err
	}
	if err := killRecorded(dir); err != nil {
		return err
	}
	return remove(dir)
}

// remove removes the work folder, whose lock the caller holds.
func remove(dir string) error {
	if err := empty(dir); err != nil {
		return err
	}
	if err := unclaim(dir); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, lockFile)); err != nil {
		return err
	}
	// Anyone who waited for the lock may have taken the folder since.
	if err := os.Remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// empty removes all but what says who owns the folder.
func empty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); name != lockFile && name != ownerFile {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}
