//go:build linux

package env

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/argomesh/argomesh/test/harness"
)

// CheckFinds is nil when `agentctl check hub` finds what a word says of an Agent, with a cure. The principal runs as a
// process, so that it also finds that none is installed.
func CheckFinds(ctx context.Context, h *harness.Harness, hub *harness.ControlPlane, namespace, agent, word string) error {
	found, err := checkHub(ctx, h, hub, namespace)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.About == "Agent "+agent && f.Word == word {
			if f.Says == "" || f.Cure == "" || !strings.Contains(f.See, "docs/reference/errors.md#") {
				return fmt.Errorf("agentctl check says %+v", f)
			}
			return nil
		}
	}
	return fmt.Errorf("agentctl check finds no %s of Agent %s: %+v", word, agent, found)
}

// CheckFindsNo is nil when it does not.
func CheckFindsNo(ctx context.Context, h *harness.Harness, hub *harness.ControlPlane, namespace, agent, word string) error {
	found, err := checkHub(ctx, h, hub, namespace)
	for _, f := range found {
		if f.About == "Agent "+agent && f.Word == word {
			return fmt.Errorf("agentctl check still says %+v", f)
		}
	}
	return err
}

// checkFinding is what it finds of one thing.
type checkFinding struct{ Level, Word, About, Says, Cure, See string }

func checkHub(ctx context.Context, h *harness.Harness, hub *harness.ControlPlane, namespace string) ([]checkFinding, error) {
	out, err := h.Agentctl(ctx, hub, "check", "hub", "--namespace", namespace, "--output", "json")
	var report struct{ Findings []checkFinding }
	if json.Unmarshal([]byte(out), &report) != nil || len(report.Findings) == 0 { // that there are problems is an error, too
		return nil, errors.Join(fmt.Errorf("agentctl check prints %q", out), err)
	}
	return report.Findings, nil
}
