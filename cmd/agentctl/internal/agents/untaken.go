package agents

import (
	"context"
	"fmt"
	"io"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	hubstate "github.com/argomesh/argomesh/fleet/hub"
)

// printUntaken says how many Applications of the hub no agent takes, as the principal
// counted them. Who may not read that, or asks a hub that does not say it, is told nothing.
func printUntaken(ctx context.Context, h *cli.Hub, w io.Writer) error {
	said, err := h.ConfigMaps.Get(ctx, hubstate.ConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil //nolint:nilerr // the list of agents is what was asked for
	}
	text, _, _ := unstructured.NestedString(said.Object, "data", hubstate.UntakenKey)
	n, err := strconv.Atoi(text)
	if err != nil || n <= 0 {
		return nil //nolint:nilerr // it says nothing
	}
	applications, say := "Applications", "say"
	if n == 1 {
		applications, say = "Application", "says"
	}
	_, err = fmt.Fprintf(w,
		"\n%d %s of this hub that no agent takes: condition ArgomeshError %s why (kubectl get applications -A -o yaml)\n", n,
		applications, say)
	return err
}
