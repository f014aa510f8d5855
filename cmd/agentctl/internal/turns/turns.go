// Package turns has one agentctl at a time work on a namespace of a Kubernetes cluster, by a Lease. A run that
// was ended gives its turn back: at once to another one of its machine, and to those of others when the Lease
// expires.
//
//	err := turns.Turns{Client: client, Namespace: "argocd", Out: os.Stdout, Explain: explain}.Take(ctx, install)
package turns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/cmd/internal/lease"
)

// leaseName is that of the Lease.
const leaseName = "agentctl-install"

// waitingAfter is when a person wants to know why nothing happens.
const waitingAfter = 3 * time.Second

// Turns are those of a namespace. All fields are required.
type Turns struct {
	Client    kubernetes.Interface
	Namespace string
	// Out is told when there is something to wait for.
	Out io.Writer
	// Explain returns an error of the Kubernetes API, which doing met, as one line with the cure.
	Explain func(err error, doing string) error
}

// Take runs f while no other agentctl works on the namespace.
func (t Turns) Take(ctx context.Context, f func(context.Context) error) error {
	here := machine()
	if err := freeLease(ctx, t.Client.CoordinationV1().Leases(t.Namespace), leaseName, here); err != nil {
		return t.Explain(err, "read Lease "+leaseName)
	}
	l, err := lease.New(lease.Config{
		Leases: t.Client.CoordinationV1(), Namespace: t.Namespace, Name: leaseName,
		Holder: newHolder(here, os.Getpid(), time.Now()),
	})
	if err != nil {
		return err
	}
	waiting := time.AfterFunc(waitingAfter, func() {
		_, _ = fmt.Fprintf(t.Out, "waiting for Lease %s of namespace %s: another agentctl works there, or was ended"+
			" less than 15 s ago\n", leaseName, t.Namespace) // its error is that of the next line
	})
	defer waiting.Stop()
	ran := false
	err = l.Run(ctx, func(ctx context.Context) error {
		waiting.Stop()
		ran = true
		return f(ctx)
	})
	switch {
	case err == nil && !ran:
		return errors.Join(errors.New("ended before anything was written"), ctx.Err())
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: run the same command again, which goes on from what is there", context.Cause(ctx))
	}
	return err
}

// End removes the Lease, once there is nothing more to take turns for.
func (t Turns) End(ctx context.Context) error {
	err := t.Client.CoordinationV1().Leases(t.Namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return t.Explain(err, "remove Lease "+leaseName)
	}
	return nil
}
