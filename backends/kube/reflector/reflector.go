// Package reflector keeps a store up to date with one resource of the Kubernetes API, by
// consistent reads only: client-go's reflector, which by itself takes what a cache of the
// API server holds, and goes on with a watch of an API server whose etcd was restored from
// a backup, which then shows nothing.
//
// It leaves to others what becomes of the objects, and what is said of an API server that
// does not answer.
//
//	reflector.Run(ctx, reflector.Config{
//		Resource: client.Resource(v1alpha1.AgentResource).Namespace("argocd"), What: "agents", Streams: client, Answered: answered,
//	}, store)
package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
)

// Config says what is reflected. Fields without a stated default are required.
type Config struct {
	Resource dynamic.ResourceInterface
	// What names the objects to client-go, such as agents.
	What string
	// Selector is a label selector. Empty means all objects.
	Selector string
	// Fields is a field selector. Empty leaves it to Resource.
	Fields string
	// Streams is the client that Resource is of, which knows whether it can be asked for
	// a list as a stream. Nil means that it is not: an API server answers a list at once
	// with what is wrong, where a reflector goes on asking for a stream.
	Streams dynamic.Interface
	// Answered is told of each answer of the API server, and of its absence, from the
	// goroutine of Run. It is not told of a list that cannot be streamed: what is wrong
	// the list says that follows.
	Answered func(ctx context.Context, err error)
	// MostRetry bounds the pause after a watch that ended or failed. Zero means 1 s; a
	// shared informer cannot be told, and waits up to a minute.
	MostRetry time.Duration
}

// Run keeps store up to date until ctx is done. The objects are *unstructured.Unstructured.
func Run(ctx context.Context, cfg Config, store cache.ReflectorStore) {
	var streams any = unstreamed{}
	if cfg.Streams != nil {
		streams = cfg.Streams
	}
	source := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{ListWithContextFunc: cfg.list,
		WatchFuncWithContext: cfg.watch}, streams)
	silent := logr.Discard() // Answered says what is wrong
	cache.NewReflectorWithOptions(source, nil, store, cache.ReflectorOptions{
		Name: "argomesh", TypeDescription: cfg.What, Logger: &silent,
		Backoff: Retry(cfg.MostRetry),
	}).RunWithContext(logr.NewContext(ctx, silent))
}

// Retry returns the pauses after a watch that ended or failed: from 250 ms to most, which
// is 1 s when it is zero, and up to half as long again by chance. There are two in a row when an
// API server that is back has forgotten where the watch stood.
func Retry(most time.Duration) *wait.Backoff {
	if most == 0 {
		most = time.Second
	}
	return &wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Steps: 10, Cap: most, Jitter: 0.5}
}

// unstreamed has a reflector list.
type unstreamed struct{}

// IsWatchListSemanticsUnSupported implements an interface of client-go.
func (unstreamed) IsWatchListSemanticsUnSupported() bool { return true }

func (c Config) narrow(opts *metav1.ListOptions) {
	opts.LabelSelector = c.Selector
	if c.Fields != "" {
		opts.FieldSelector = c.Fields
	}
}

// list is by quorum.
func (c Config) list(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	c.narrow(&opts)
	opts.ResourceVersion, opts.ResourceVersionMatch = "", ""
	list, err := c.Resource.List(ctx, opts)
	c.Answered(ctx, err)
	return list, err
}

// watch opens a watch. One that begins with the list is by quorum, too.
func (c Config) watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	c.narrow(&opts)
	streamed := opts.SendInitialEvents != nil && *opts.SendInitialEvents
	if streamed {
		opts.ResourceVersion = ""
	}
	events, err := c.Resource.Watch(ctx, opts)
	if err == nil && !streamed {
		if err = Continues(ctx, c.Resource, opts.ResourceVersion); err != nil {
			events.Stop()
		}
	}
	if err != nil && streamed {
		// The reflector lists now. It must not know this error: its own retries of a
		// streamed list outlive ctx.
		return nil, errors.New("streamed list: " + err.Error())
	}
	c.Answered(ctx, err)
	if err != nil {
		return nil, err
	}
	return events, nil
}

// Continues returns an error when the API server is behind resourceVersion, as after
// its etcd was restored from a backup. A watch from there on is not refused: it shows
// nothing until the API server has caught up, and what was written meanwhile never.
// The error is the one with which an API server says that it has forgotten a
// resourceVersion, so that a reflector lists again. Where the API server stands is
// asked of its etcd.
func Continues(ctx context.Context, resource dynamic.ResourceInterface, resourceVersion string) error {
	now, err := resource.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if order, err := resourceversion.CompareResourceVersion(now.GetResourceVersion(), resourceVersion); err == nil &&
		order < 0 {
		return apierrors.NewResourceExpired(fmt.Sprintf("the API server is at resourceVersion %s and was at %s",
			now.GetResourceVersion(), resourceVersion))
	}
	return nil
}
