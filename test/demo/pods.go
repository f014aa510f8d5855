//go:build linux

package main

import (
	"fmt"
	"os"
)

// pods is what kwok plays for each pod: a log, and commands that run on this machine with
// the rights of who runs the demo, in a folder of the demo.
const pods = `
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterLogs
metadata: {name: all}
spec:
  logs:
  - {logsFile: %[1]q, follow: true}
---
apiVersion: kwok.x-k8s.io/v1alpha1
kind: ClusterExec
metadata: {name: all}
spec:
  execs:
  - local: {workDir: %[2]q, envs: [{name: PATH, value: /usr/bin:/bin}]}
`

// podLog is the log of each pod, in lines as a container runtime writes them.
const podLog = `2026-01-01T00:00:00.000000000Z stdout F The guestbook listens on port 80.
2026-01-01T00:00:01.000000000Z stdout F This is kwok: the pod is played, and every pod has this log.
`

// writePods writes what kwok reads for that, and returns its path.
func (t *topology) writePods() (string, error) {
	log, folder, path := t.h.Path("pod.log"), t.h.Path("pod"), t.h.Path("pods.yaml")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(log, []byte(podLog), 0o600); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, fmt.Appendf(nil, pods, log, folder), 0o600)
}
