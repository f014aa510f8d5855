//go:build linux

package harnesstest_test

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/argomesh/argomesh/test/harness"
	"github.com/argomesh/argomesh/test/harness/harnesstest"
)

// The servers of a test beside which no other runs use all processors; those of others one.
func TestAlone(t *testing.T) {
	harnesstest.SkipMissing(t, "etcd")
	for name, tc := range map[string]struct {
		harness func(testing.TB) *harness.Harness
		one     bool
	}{
		"alone":  {harnesstest.Alone, false},
		"beside": {harnesstest.AtOnce, true},
	} {
		t.Run(name, func(t *testing.T) {
			etcd, err := tc.harness(t).StartEtcd(t.Context(), "etcd")
			if err != nil {
				t.Fatal(err)
			}
			environment, err := os.ReadFile("/proc/" + strconv.Itoa(etcd.PID()) + "/environ")
			if err != nil {
				t.Fatal(err)
			}
			if one := slices.Contains(strings.Split(string(environment), "\x00"), "GOMAXPROCS=1"); one != tc.one {
				t.Errorf("it has one processor: %t, want %t", one, tc.one)
			}
		})
	}
}
