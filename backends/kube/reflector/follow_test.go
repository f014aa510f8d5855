package reflector_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/argomesh/argomesh/backends/kube/reflector"
)

// noted notes from where it is watched.
type noted struct {
	*server
	from []metav1.ListOptions
}

func (n *noted) Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	n.from = append(n.from, opts)
	return n.server.Watch(ctx, opts)
}

func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &noted{server: &server{version: "7"}}
		ctx, cancel := context.WithCancel(t.Context())
		var told []string
		done := make(chan struct{})
		go func() {
			defer close(done)
			reflector.Follow(ctx, reflector.Config{
				Resource: s, What: "things", Fields: "a=b", Answered: func(context.Context, error) {},
			}, func(kind watch.EventType, o *unstructured.Unstructured) {
				told = append(told, string(kind)+" "+o.GetResourceVersion())
			})
		}()
		object := func(version string) *unstructured.Unstructured {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Thing"})
			o.SetResourceVersion(version)
			return o
		}
		wants := func(when, from string, events ...string) {
			t.Helper()
			synctest.Wait()
			if last := s.from[len(s.from)-1]; last.ResourceVersion != from || last.FieldSelector != "a=b" {
				t.Errorf("%s it watches %+v, want from %s", when, last, from)
			}
			if !slices.Equal(told, events) {
				t.Errorf("%s it was told of %v, want %v", when, told, events)
			}
			told = nil
		}
		pass := func() { time.Sleep(10 * time.Second) } //nolint:forbidigo // virtual time
		wants("at first", "7")
		if len(s.lists) != 0 {
			t.Errorf("it lists %+v", s.lists)
		}
		s.watches[0].Add(object("8"))
		s.watches[0].Modify(object("9"))
		s.watches[0].Delete(object("10"))
		s.watches[0].Action(watch.Bookmark, object("20"))
		wants("of what happens", "7", "ADDED 8", "MODIFIED 9")
		s.goOn("20")
		s.watches[0].Stop()
		pass()
		wants("after the end of a watch", "20")
		s.watches[1].Error(&metav1.Status{Reason: metav1.StatusReasonExpired, Code: 410})
		s.goOn("40")
		pass()
		wants("when that is forgotten", "40")
		s.restore("5")
		pass()
		wants("after a restore", "5")
		s.fail(context.DeadlineExceeded)
		s.watches[len(s.watches)-1].Stop()
		pass()
		s.recover()
		pass()
		wants("after an outage", "5")
		cancel()
		<-done
	})
}
