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
// nobody else may write: its records say which processes to kill. It may not exist.
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
