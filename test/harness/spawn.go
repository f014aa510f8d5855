//go:build linux

package harness

import (
	"os/exec"
	"runtime"
	"sync"
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
