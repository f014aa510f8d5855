package main

import (
	"os"
	"runtime"
)

// leaveProcessors has the agent compute on half of the processors that it may have, so that the spoke has the
// other half whatever a hub has it compute. The environment variable GOMAXPROCS says another number.
func leaveProcessors() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(halfOf(runtime.GOMAXPROCS(0)))
	}
}

// halfOf is half of n processors, at least one.
func halfOf(n int) int { return max(n/2, 1) }
