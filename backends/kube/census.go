package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/argomesh/argomesh/stream"
)

const (
	// censusPage is how many objects without their contents a list asks for at once.
	censusPage = 500
	// censusShare is which part of the time one Census lists at most: one in so many.
	censusShare = 10
)

// Census tells whether the cache of a Store shows only what is there. A cache whose
// watch stands before a restore of the API server's etcd shows what is no more.
//
// It asks by consistent lists of metadata. However many ask, and however often, there
// is one list at a time, which answers all who asked for the same before it began, and
// after each the API server has peace for nine times as long as it took. Its methods
// may be called concurrently.
type Census struct {
	store  *Store
	client metadata.Interface
	turn   chan struct{} // has a value while somebody lists, or is about to
	rested time.Time     // when the next list may begin; of whoever has the turn

	mu     sync.Mutex      // guards coming
	coming map[part]*count // that have not begun
}

// part is what one list is about: a kind in a namespace, or in all when that is empty.
type part struct {
	kind      stream.Kind
	namespace string
}

// count is one list for all who asked before it began.
type count struct {
	done chan struct{} // closed when what follows is set
	// caughtUp and err are the answer, unless whoever listed gave up.
	caughtUp  bool
	err       error
	abandoned bool
}

// NewCensus returns a Census of a Store. The client reaches the same API server.
func NewCensus(store *Store, client metadata.Interface) *Census {
	return &Census{store: store, client: client, turn: make(chan struct{}, 1), coming: map[part]*count{}}
}

// CaughtUp reports whether all that the cache shows of a kind in a namespace, or in
// all if that is empty, is there by a consistent read that begins after the call, and
// the same objects. It waits for its turn until ctx is done.
func (c *Census) CaughtUp(ctx context.Context, kind stream.Kind, namespace string) (bool, error) {
	p := part{kind, namespace}
	for {
		n, first := c.join(p)
		if first {
			c.take(ctx, p, n)
			return n.caughtUp, n.err
		}
		select {
		case <-n.done:
			if !n.abandoned {
				return n.caughtUp, n.err
			}
		case <-ctx.Done():
			return false, waited(ctx, p)
		}
	}
}

// join returns the next count of a part that has not begun, and whether the caller is
// to take it.
func (c *Census) join(p part) (n *count, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n, coming := c.coming[p]; coming {
		return n, false
	}
	n = &count{done: make(chan struct{})}
	c.coming[p] = n
	return n, true
}

// take waits for the turn of n, and answers.
func (c *Census) take(ctx context.Context, p part, n *count) {
	defer close(n.done)
	err := c.await(ctx)
	c.mu.Lock()
	delete(c.coming, p) // who asks from now on asks for a later one
	c.mu.Unlock()
	if err != nil {
		n.err, n.abandoned = waited(ctx, p), true
		return
	}
	began := time.Now()
	n.caughtUp, n.err = c.list(ctx, p)
	n.abandoned = n.err != nil && ctx.Err() != nil
	c.rested = time.Now().Add((censusShare - 1) * time.Since(began))
	<-c.turn
}

// await returns when it is the caller's turn, which the caller gives back, or with an
// error once ctx is done.
func (c *Census) await(ctx context.Context) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	rest := time.NewTimer(time.Until(c.rested))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		<-c.turn
		return err
	}
	return nil
}

func waited(ctx context.Context, p part) error {
	return fmt.Errorf("wait for a list of %s: %w", p, context.Cause(ctx))
}

func (p part) String() string {
	if p.namespace == "" {
		return string(p.kind) + " of all namespaces"
	}
	return string(p.kind) + " of " + p.namespace
}

// list compares the cache with what is there.
func (c *Census) list(ctx context.Context, p part) (caughtUp bool, err error) {
	cached := c.store.List(p.kind, p.namespace) // before the read, which may only know more
	there := make(map[types.NamespacedName]types.UID, len(cached))
	for _, i := range c.store.informers {
		if i.kind != p.kind || p.namespace != "" && !i.covers(p.namespace) {
			continue
		}
		if err := c.uids(ctx, i, p.namespace, there); err != nil {
			return false, fmt.Errorf("list %s: %w", p, err)
		}
	}
	for _, o := range cached {
		if there[types.NamespacedName{Namespace: o.Key.Namespace, Name: o.Key.Name}] != types.UID(o.UID) {
			return false, nil
		}
	}
	return true, nil
}

// uids adds the objects of a namespace that are an informer's.
func (c *Census) uids(ctx context.Context, i *informer, namespace string, there map[types.NamespacedName]types.UID) error {
	if namespace == "" {
		namespace = i.namespace
	}
	resource := c.client.Resource(resources[i.kind]).Namespace(namespace)
	opts := i.selector.narrow(metav1.ListOptions{Limit: censusPage})
	for {
		limited, cancel := context.WithTimeout(ctx, listTimeout)
		page, err := resource.List(limited, opts)
		cancel()
		if err != nil {
			return err
		}
		for n := range page.Items {
			there[types.NamespacedName{Namespace: page.Items[n].Namespace, Name: page.Items[n].Name}] = page.Items[n].UID
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}
