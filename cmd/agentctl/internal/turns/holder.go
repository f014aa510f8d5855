package turns

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// machine names this machine until its next start, and its view of processes; "" where it
// cannot be told from another.
func machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	view, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + "/" + strings.Trim(view, "pid:[]")
}

// newHolder names this process among all that may want the Lease.
func newHolder(machine string, pid int, now time.Time) string {
	return fmt.Sprintf("agentctl/%s/%d/%d", machine, pid, now.UnixNano())
}

// ended reports whether a holder was a process of this machine that runs no more. One that it
// cannot tell of has not ended.
func ended(holder, machine string, runs func(pid int) bool) bool {
	rest, ours := strings.CutPrefix(holder, "agentctl/"+machine+"/")
	if !ours || machine == "" {
		return false
	}
	text, _, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(text)
	return err == nil && pid > 0 && !runs(pid)
}

// runs reports whether a process of this machine may run.
func runs(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// freeLease takes the Lease from an agentctl of this machine that was ended before it gave it
// back, so that who runs the command again does not wait until the Lease expires.
func freeLease(ctx context.Context, leases coordination.LeaseInterface, name, machine string) error {
	l, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if l.Spec.HolderIdentity == nil || !ended(*l.Spec.HolderIdentity, machine, runs) {
		return nil
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = new(""), new(int32(1)) // as who gives it back
	_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return nil // someone else has it now
	}
	return err
}
