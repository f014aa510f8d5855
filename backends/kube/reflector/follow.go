package reflector

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// Follow tells of what is added and modified from now on, until ctx is done. It lists
// nothing and keeps nothing: what was before the call is not told, nor what the API server
// has forgotten by the time that a watch goes on, as after a restore. Streams does not count.
func Follow(ctx context.Context, cfg Config, tell func(watch.EventType, *unstructured.Unstructured)) {
	retry := Retry(cfg.MostRetry)
	for at := ""; ctx.Err() == nil; {
		var opened bool
		if at, opened = cfg.follow(ctx, at, tell); opened {
			retry = Retry(cfg.MostRetry)
		}
		pause := time.NewTimer(retry.Step())
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// follow watches from a resourceVersion on, or from now on when that is empty, until the
// watch ends, and returns where that was.
func (c Config) follow(ctx context.Context, at string,
	tell func(watch.EventType, *unstructured.Unstructured)) (end string, opened bool) {
	if at == "" {
		now, err := c.Resource.List(ctx, metav1.ListOptions{Limit: 1}) // of any, since a selector reads all that there are
		if err != nil {
			c.Answered(ctx, err)
			return "", false
		}
		at = now.GetResourceVersion()
	}
	events, err := c.watch(ctx, metav1.ListOptions{ResourceVersion: at, AllowWatchBookmarks: true})
	switch {
	case apierrors.IsResourceExpired(err) || apierrors.IsGone(err):
		return "", false
	case err != nil:
		return at, false
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return at, true
		case e, open := <-events.ResultChan():
			object, is := e.Object.(*unstructured.Unstructured)
			switch {
			case !open:
				return at, true
			case e.Type == watch.Error || !is:
				return "", true
			case e.Type == watch.Added || e.Type == watch.Modified:
				tell(e.Type, object)
			}
			at = object.GetResourceVersion()
		}
	}
}
