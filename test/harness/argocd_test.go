//go:build linux

package harness_test

import (
	"testing"

	"github.com/argomesh/argomesh/test/harness"
)

func TestSyncedAndHealthy(t *testing.T) {
	for printed, good := range map[string]bool{
		`{"status": {"sync": {"status": "Synced"}, "health": {"status": "Healthy"}}}`:     true,
		`{"status": {"sync": {"status": "OutOfSync"}, "health": {"status": "Healthy"}}}`:  false,
		`{"status": {"sync": {"status": "Synced"}, "health": {"status": "Progressing"}}}`: false,
		`{"status": {"sync": {"status": "Synced"}}}`:                                      false,
		`{"metadata": {"name": "guestbook"}}`:                                             false,
		`Name: argocd/guestbook`:                                                          false,
		``:                                                                                false,
	} {
		if err := harness.SyncedAndHealthy(printed); (err == nil) != good {
			t.Errorf("SyncedAndHealthy(%s) = %v", printed, err)
		}
	}
}
