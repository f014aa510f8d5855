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
	// consistencyPage is how many objects without their contents a list asks for at once.
	consistencyPage = 500
	// consistencyRatio is which part of the time one ConsistencyChecker lists at most: one in so many.
	consistencyRatio = 10
	// consistencyPause is the longest pause after a list. Two lists and it are within the minute
	// of I8.
	consistencyPause = 20 * time.Second
)

// ConsistencyChecker tells whether the cache of a Store shows only what is there. A cache whose
// watch stands before a restore of the API server's etcd shows what is no more.
//
// It asks by consistent lists of metadata. However many ask, and however often, there
// is one list at a time, which answers all who asked for that kind before it began: it
// is of the one namespace that they asked for, or of all. After each the API server has
// peace for nine times as long as it took, or for consistencyPause. So those of a thousand
// agents, each with a namespace, have their answers when a list or two of all is done. Its
// methods may be called concurrently.
type ConsistencyChecker struct {
	store       *Store
	client      metadata.Interface
	slot        chan struct{} // has a value while someone lists, or is about to
	nextAllowed time.Time     // when the next list may begin; of anyone who has the slot

	mu     sync.Mutex             // guards queued
	queued map[stream.Kind]*count // that have not begun
}

// count is one list of a kind for all who asked before it began.
type count struct {
	kind stream.Kind
	// namespaces are those that were asked for, empty for all; guarded by the mu of the
	// ConsistencyChecker until it begins.
	namespaces map[string]struct{}
	done       chan struct{} // closed when what follows is set
	// behind has each namespace in which the cache shows what is not there, unless err
	// says that no one knows, or anyone who listed gave up.
	behind    map[string]struct{}
	err       error
	abandoned bool
}

// caughtUp is the answer for a namespace, or for all if that is empty.
func (n *count) caughtUp(namespace string) (bool, error) {
	_, behind := n.behind[namespace]
	if namespace == "" {
		behind = len(n.behind) > 0
	}
	return n.err == nil && !behind, n.err
}

// NewConsistencyChecker returns a ConsistencyChecker of a Store. The client reaches the same API server.
func NewConsistencyChecker(store *Store, client metadata.Interface) *ConsistencyChecker {
	return &ConsistencyChecker{store: store, client: client, slot: make(chan struct{}, 1),
		queued: map[stream.Kind]*count{}}
}

// CaughtUp reports whether all that the cache shows of a kind in a namespace, or in
// all if that is empty, is there by a consistent read that begins after the call, and
// the same objects. It waits for its turn until ctx is done.
func (c *ConsistencyChecker) CaughtUp(ctx context.Context, kind stream.Kind, namespace string) (bool, error) {
	for {
		n, first := c.join(kind, namespace)
		if first {
			c.answer(ctx, n)
			return n.caughtUp(namespace)
		}
		select {
		case <-n.done:
			if !n.abandoned {
				return n.caughtUp(namespace)
			}
		case <-ctx.Done():
			return false, waited(ctx, kind)
		}
	}
}

// join returns the next count of a kind that has not begun, and whether the caller is
// to take it.
func (c *ConsistencyChecker) join(kind stream.Kind, namespace string) (n *count, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, coming := c.queued[kind]
	if !coming {
		n = &count{kind: kind, namespaces: map[string]struct{}{}, done: make(chan struct{})}
		c.queued[kind] = n
	}
	n.namespaces[namespace] = struct{}{}
	return n, !coming
}

// answer waits for the turn of n, and answers.
func (c *ConsistencyChecker) answer(ctx context.Context, n *count) {
	defer close(n.done)
	err := c.await(ctx)
	c.mu.Lock()
	delete(c.queued, n.kind) // who asks from now on asks for a later one
	c.mu.Unlock()
	if err != nil {
		n.err, n.abandoned = waited(ctx, n.kind), true
		return
	}
	began := time.Now()
	n.behind, n.err = c.list(ctx, n.kind, n.namespace())
	n.abandoned = n.err != nil && ctx.Err() != nil
	c.nextAllowed = time.Now().Add(min((consistencyRatio-1)*time.Since(began), consistencyPause))
	<-c.slot
}

// namespace is the namespace to list; empty for all.
func (n *count) namespace() string {
	if len(n.namespaces) == 1 {
		for namespace := range n.namespaces {
			return namespace
		}
	}
	return ""
}

// await returns when it is the caller's turn, which the caller gives back, or with an
// error once ctx is done.
func (c *ConsistencyChecker) await(ctx context.Context) error {
	select {
	case c.slot <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	rest := time.NewTimer(time.Until(c.nextAllowed))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-ctx.Done():
	}
	if err := ctx.Err(); err != nil {
		<-c.slot
		return err
	}
	return nil
}

func waited(ctx context.Context, kind stream.Kind) error {
	return fmt.Errorf("wait for a list of %s: %w", kind, context.Cause(ctx))
}

// list compares the cache with what is there, in a namespace or in all if that is
// empty, and returns the namespaces in which the cache shows what is not there.
func (c *ConsistencyChecker) list(ctx context.Context, kind stream.Kind,
	namespace string) (behind map[string]struct{}, err error) {
	cached := c.store.List(kind, namespace) // before the read, which may only know more
	there := make(map[types.NamespacedName]types.UID, len(cached))
	for _, i := range c.store.informers {
		if i.kind != kind || namespace != "" && !i.covers(namespace) {
			continue
		}
		if err := c.uids(ctx, i, namespace, there); err != nil {
			return nil, fmt.Errorf("list %s: %w", kind, err)
		}
	}
	behind = map[string]struct{}{}
	for _, o := range cached {
		if there[types.NamespacedName{Namespace: o.Key.Namespace, Name: o.Key.Name}] != types.UID(o.UID) {
			behind[o.Key.Namespace] = struct{}{}
		}
	}
	return behind, nil
}

// uids adds the objects of a namespace that are an informer's.
func (c *ConsistencyChecker) uids(ctx context.Context, i *informer, namespace string,
	there map[types.NamespacedName]types.UID) error {
	if namespace == "" {
		namespace = i.namespace
	}
	resource := c.client.Resource(resourceOf(i.kind)).Namespace(namespace)
	opts := narrow(metav1.ListOptions{Limit: consistencyPage}, i.selector)
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
