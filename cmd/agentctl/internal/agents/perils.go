package agents

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/generators"
	"github.com/argomesh/argomesh/fleet"
	"github.com/argomesh/argomesh/fleet/controller"
	"github.com/argomesh/argomesh/identity"
)

// agentChange is an Agent before and after what a person is about to do to it.
type agentChange struct {
	before, after *v1alpha1.Agent
}

// letsIn reports whether an agent that was kept out may connect afterwards, and then does
// what waits for it.
func (c agentChange) letsIn() bool {
	return c.before.Spec.Suspended && !c.after.Spec.Suspended ||
		!slices.Equal(c.before.Spec.Identity.SPIFFEIDs, c.after.Spec.Identity.SPIFFEIDs)
}

// relabels reports whether the labels of the cluster Secret change.
func (c agentChange) relabels() bool { return !maps.Equal(c.before.Spec.Labels, c.after.Spec.Labels) }

// gains are the hub's namespaces that the agent names afterwards, and did not before.
func (c agentChange) gains() []string {
	var had, gained []string
	for _, m := range fleet.NamespacesOf(c.before) {
		had = append(had, m.Hub)
	}
	for _, m := range fleet.NamespacesOf(c.after) {
		if !slices.Contains(had, m.Hub) {
			gained = append(gained, m.Hub)
		}
	}
	return gained
}

// perils returns in which ways the change may delete workloads, as far as the Agent alone
// says; none when it cannot.
func (c agentChange) perils() []string {
	var out []string
	if c.before.DeletionTimestamp != nil && fleet.Cascades(c.after) && !fleet.Cascades(c.before) {
		out = append(out, "the Agent is being deleted: with deletionPolicy cascade its Applications go with their workloads")
	}
	held := c.before.Status.DeletionsHeld
	if held == nil {
		return out
	}
	if c.after.Annotations[v1alpha1.AcceptDeletionsAnnotation] == held.ID &&
		c.before.Annotations[v1alpha1.AcceptDeletionsAnnotation] != held.ID {
		out = append(out,
			fmt.Sprintf("the annotation %s lets %s happen that are held", v1alpha1.AcceptDeletionsAnnotation,
				deletions(held.Total)))
	}
	before, after := fleet.CascadeHold(c.before), fleet.CascadeHold(c.after)
	if held.WithWorkloads > 0 && before != 0 && (after == 0 || after > before) {
		out = append(out,
			fmt.Sprintf("with cascadeHold %d instead of %d what is held need not wait any more: %s with workloads", after,
				before, deletions(held.WithWorkloads)))
	}
	return out
}

// relabelPerils returns which ApplicationSets may delete what they made for the cluster.
func (c agentChange) relabelPerils(name identity.AgentName, sets []*unstructured.Unstructured) []string {
	was, is := controller.ClusterLabels(name, c.before.Spec.Labels), controller.ClusterLabels(name, c.after.Spec.Labels)
	var out []string
	for _, set := range sets {
		if !generators.DeletesWorkloads(set) || generators.Chooses(set, was) == generators.NotSelected {
			continue
		}
		who := set.GetNamespace() + "/" + set.GetName()
		switch {
		case generators.Chooses(set, is) != generators.Selected:
			out = append(out,
				fmt.Sprintf("ApplicationSet %s may not select the cluster by its new labels, and deletes then what it made for it, with its workloads", who))
		case generators.ReadsLabels(set):
			out = append(out,
				fmt.Sprintf("ApplicationSet %s makes Applications of the cluster's labels, and deletes those that it would not make of the new ones, with their workloads", who))
		}
	}
	return out
}

// perilsOf returns in which ways a change may delete workloads, by what the hub has. What
// the hub does not let us read is such a way, too.
func perilsOf(ctx context.Context, h *cli.Hub, c agentChange) []string {
	out := c.perils()
	if gained := c.gains(); (c.letsIn() || len(gained) > 0) && c.after.Spec.Mode == v1alpha1.ModeManaged {
		going, err := deletingOf(ctx, h, c.after.Name, "")
		fresh := slices.DeleteFunc(slices.Clone(going),
			func(app *unstructured.Unstructured) bool { return !slices.Contains(gained, app.GetNamespace()) })
		switch {
		case apierrors.IsNotFound(err): // a hub without Argo CD
		case err != nil:
			out = append(out, "whether Applications wait to be deleted with their workloads cannot be read: "+cli.OneLine(err))
		case c.letsIn() && len(going) > 0:
			out = append(out,
				fmt.Sprintf("the agent may connect then, and delete with its workloads what waits for that: %s", namesOf(going)))
		case len(fresh) > 0:
			out = append(out,
				fmt.Sprintf("the agent gets namespaces in which Applications wait to be deleted with their workloads: %s",
					namesOf(fresh)))
		}
	}
	if name, err := identity.ParseAgentName(c.after.Name); err == nil && c.relabels() {
		sets, err := generators.List(ctx, h)
		if err != nil {
			out = append(out, "whether an ApplicationSet selects the cluster by its labels cannot be read: "+cli.OneLine(err))
		}
		out = append(out, c.relabelPerils(name, sets)...)
	}
	return out
}

// agreesTo returns whether a person agrees to a change; no one is asked about one that
// cannot delete workloads.
func agreesTo(ctx context.Context, h *cli.Hub, std cli.Streams, yes bool, c agentChange) (bool, error) {
	perils := perilsOf(ctx, h, c)
	if len(perils) == 0 {
		return true, nil
	}
	if err := printPerils(std.Err, perils); err != nil {
		return false, err
	}
	return cli.Consent(std, yes, fmt.Sprintf("Change agent %q all the same?", c.after.Name))
}

func printPerils(w io.Writer, perils []string) error {
	if _, err := fmt.Fprintln(w, "This may delete workloads:"); err != nil {
		return err
	}
	for _, p := range perils {
		if _, err := fmt.Fprintln(w, "  "+cli.CleanText(p)); err != nil {
			return err
		}
	}
	return nil
}

// maxNamed is how many Applications are named before a question.
const maxNamed = 10

// namesOf names Applications in one line, the first few of many.
func namesOf(apps []*unstructured.Unstructured) string {
	out := ""
	for i, app := range apps {
		if i == maxNamed {
			return out + fmt.Sprintf(" and %d more", len(apps)-maxNamed)
		}
		if i > 0 {
			out += ", "
		}
		out += app.GetNamespace() + "/" + app.GetName()
	}
	return out
}
