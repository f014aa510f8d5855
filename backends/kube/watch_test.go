package kube

import (
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A watch that cannot be opened is tried again, and not for ever: a proxy that lets only
// lists pass leaves those.
func TestAWatchThatCannotBeOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i, away := &informer{}, errors.New("bad gateway")
		again := func(err error) bool { return errors.Is(i.goOn(err), syscall.ECONNREFUSED) }
		for name, err := range map[string]error{
			"forgotten": apierrors.NewResourceExpired("too old resource version"),
			"no kind":   apierrors.NewNotFound(schema.GroupResource{}, ""),
			"forbidden": apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no")),
		} {
			if again(err) {
				t.Errorf("%s: the watch is tried again", name)
			}
		}
		if !again(away) {
			t.Error("the first time: a list follows")
		}
		time.Sleep(mostAway) //nolint:forbidigo // virtual time
		if !again(away) {
			t.Errorf("after %s: a list follows", mostAway)
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
		if again(away) {
			t.Errorf("after more than %s: the watch is tried again", mostAway)
		}
	})
}
