//go:build linux

package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Files of a pod.
const (
	logFile    = "log"    // what kwok's kubelet says its log is: of a Job's what its program printed, once that has ended
	outputFile = "output" // of a Job's program
	exitFile   = "exit"   // the code with which that ended
)

// once reports whether the pod is one of a Job, whose program runs once.
func (p *pod) once() bool {
	return slices.ContainsFunc(p.is.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == "Job" })
}

// finish says of a pod of a Job how its program has ended, if it has.
func (n *Node) finish(ctx context.Context, p *pod) error {
	text, err := os.ReadFile(filepath.Join(p.dir, exitFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	code, err := strconv.Atoi(string(text))
	if err != nil {
		return err
	}
	output, err := os.ReadFile(filepath.Join(p.dir, outputFile))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.dir, logFile), logOf(output, time.Now()), 0o600); err != nil {
		return err
	}
	now, err := n.client.CoreV1().Pods(p.is.Namespace).Get(ctx, p.is.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	now.Status.Phase = corev1.PodSucceeded
	if code != 0 {
		now.Status.Phase = corev1.PodFailed
	}
	for i := range now.Status.ContainerStatuses {
		s := &now.Status.ContainerStatuses[i]
		s.Ready = false
		s.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: int32(code), Reason: "Completed", StartedAt: metav1.Now(), FinishedAt: metav1.Now(), //nolint:gosec // a byte
		}}
	}
	_, err = n.client.CoreV1().Pods(p.is.Namespace).UpdateStatus(ctx, now, metav1.UpdateOptions{})
	return err
}

// logOf is output in the form of a container runtime.
func logOf(output []byte, at time.Time) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(output)) {
		fmt.Fprintf(&out, "%s stdout F %s\n", at.UTC().Format(time.RFC3339Nano), strings.TrimSuffix(line, "\n"))
	}
	return out.Bytes()
}
