// Command workload is what pods of the cluster test run: it says a line each second until
// it is asked to end. With argument pause it says nothing, and collects the orphans of its
// PID namespace: so it holds a pod's namespaces, and those of a node.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGINT, syscall.SIGTERM)
	if slices.Contains(os.Args, "pause") {
		pause(end)
		return
	}
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for line := 1; ; line++ {
		fmt.Println("line", line)
		select {
		case <-end:
			return
		case <-second.C:
		}
	}
}

// pause collects orphans until it is asked to end.
func pause(end <-chan os.Signal) {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-end:
			return
		case <-children: // one signal may stand for many
		}
		for pid := 1; pid > 0; {
			pid, _ = syscall.Wait4(-1, nil, syscall.WNOHANG, nil) // an error says that there are no more
		}
	}
}
