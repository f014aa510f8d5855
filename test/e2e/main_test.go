//go:build linux

package e2e

import (
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// TestMain keeps client-go quiet: what it has to say reaches the tests as errors, and the
// API server's warnings about Argo CD's finalizers would bury why a test fails.
func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
