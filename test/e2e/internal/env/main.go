//go:build linux

// Package env has the environments of the end-to-end tests: real control planes with Argo CD,
// a principal and agents of this checkout.
//
//   - Argo is a hub and two spokes with Argo CD, edge-1 (managed) and edge-2 (autonomous).
//   - Bare is a hub and a spoke without Argo CD, on which nothing writes but a test and we.
//   - Live is a hub with Envoy and two spokes, of which one has pods, for live access.
//
// A test takes the one that is shared, if it leaves the objects of others and all processes
// alone, or one of its own:
//
//	w := env.SharedBare(t)
//	w := env.OwnBare(t)
//
// What is here is used by the tests of more than one subject; what one subject needs is in its
// own folder.
package env

import (
	"flag"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/argomesh/argomesh/test/harness/kubelet"

	_ "github.com/argomesh/argomesh/test/golden" // its flag, in builds without the tests that compare too
)

// atOnce is how many tests of a package run at a time: they mostly wait, and Busy has those
// that keep servers busy take turns.
const atOnce = "200"

// Main runs the tests of a package, which calls it in its TestMain: as many at a time as it
// likes, unless -parallel says otherwise, and with client-go quiet: what it has to say reaches
// the tests as errors, and the API server's warnings about Argo CD's finalizers would bury why
// a test fails. A start of it that is a pod of package kubelet runs that.
func Main(m *testing.M) {
	is, err := kubelet.Main()
	if err != nil {
		panic(err) // which is in the log of the pod
	}
	if is {
		return
	}
	klog.SetLogger(logr.Discard())
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err) // package testing has that flag
		}
	}
	m.Run()
}
