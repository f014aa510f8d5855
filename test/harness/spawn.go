//go:build linux

package harness

import (
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// spawner starts commands on one thread that lives as long as it does. The kernel
// ties a parent-death signal to the thread that started the child, and Go ends
// threads as it likes.
type spawner struct {
	requests chan spawnRequest
	end      sync.Once
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan<- error
}

func newSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest)}
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for request := range s.requests {
			request.done <- request.cmd.Start()
		}
	}()
	return s
}

// start starts cmd. It must not be called after stop.
func (s *spawner) start(cmd *exec.Cmd) error {
	done := make(chan error)
	s.requests <- spawnRequest{cmd, done}
	return <-done
}

// stop ends the thread, and with it every child still alive.
func (s *spawner) stop() {
	s.end.Do(func() { close(s.requests) })
}

// Isolated starts a process as the first one of namespaces of its own: it is the root user there, and has its
// own mounts, network, name of the machine, and processes, which end with it. Where the kernel lets users have these
// (user_namespaces(7)) that takes no rights.
func Isolated() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS |
			syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}
