package agents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/argomesh/argomesh/api/v1alpha1"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

type editCommand struct {
	std    cli.Streams
	conn   *cli.Connection
	output *cli.Output
	yes    bool
}

func newEditCommand(std cli.Streams, conn *cli.Connection) *cobra.Command {
	c := &editCommand{std: std, conn: conn, output: cli.NewOutput(cli.ObjectFormats()...)}
	cmd := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change an agent in your editor",
		Long: "Change an agent in the editor that KUBE_EDITOR or EDITOR names, vi when neither is\n" +
			"set. What the hub refuses is shown in the editor again, with the reason.\n\n" +
			"A change that may delete workloads is asked about, and needs --yes where there is no terminal:\n" +
			"of deletionPolicy while the Agent is being deleted, of what is held, of the labels by which an\n" +
			"ApplicationSet selects the cluster, or one that lets an agent in for which deletions wait.",
		Example:           "  KUBE_EDITOR=\"code --wait\" agentctl agent edit edge-1",
		Args:              cli.Names(true),
		ValidArgsFunction: conn.CompleteName,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.AddFlag(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask before a change that may delete workloads")
	return cmd
}

func (c *editCommand) run(ctx context.Context, name string) error {
	h, err := c.conn.Hub()
	if err != nil {
		return err
	}
	doing := fmt.Sprintf("edit agent %q", name)
	obj, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return h.Explain(err, doing)
	}
	text, err := yaml.Marshal(editable(obj))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	file, err := cli.NewEditFile(name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	stored, err := c.untilAccepted(ctx, h, obj, text, file)
	switch {
	case errors.Is(err, errNoChange):
		file.Remove()
		_, err = fmt.Fprintln(c.std.Err, "Edit cancelled, no changes made.")
		return err
	case err != nil:
		return fmt.Errorf("%w; your version is in %s", h.Explain(err, doing), file.Path)
	}
	file.Remove()
	return c.output.Done(c.std.Out, stored, "edited")
}

var (
	errNoChange = errors.New("no change")
	errChanged  = errors.New("it was changed on the hub meanwhile: edit it again")
)

// untilAccepted opens the editor until the hub takes what it left, or it left
// the same text again.
func (c *editCommand) untilAccepted(ctx context.Context, h *cli.Hub, obj *unstructured.Unstructured, text []byte,
	file cli.EditFile) (*unstructured.Unstructured, error) {
	before := editable(obj)
	agent, err := cli.ParseAgent(obj)
	if err != nil {
		return nil, err
	}
	var refusal error
	for {
		left, err := file.Edit(ctx, c.std, editHeader(refusal), text)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(left, text) {
			if refusal != nil {
				return nil, refusal
			}
			return nil, errNoChange
		}
		text = left
		if len(bytes.TrimSpace(left)) == 0 {
			return nil, errNoChange
		}
		var after map[string]any
		if err := yaml.UnmarshalStrict(left, &after); err != nil {
			refusal = err
			continue
		}
		if reflect.DeepEqual(before, after) {
			return nil, errNoChange
		}
		edited, err := readEdited(after, agent)
		if err != nil {
			refusal = err
			continue
		}
		if ok, err := agreesTo(ctx, h, c.std, c.yes, agentChange{before: agent, after: edited}); err != nil || !ok {
			return nil, cmp.Or(err, errNoChange)
		}
		stored, err := patchAgent(ctx, h, obj.GetName(), before, after)
		if err == nil || !isRefusal(err) {
			return stored, err
		}
		refusal = err
	}
}

// readEdited returns an edited Agent with what no edit changes, its status and its deletion.
func readEdited(edited map[string]any, of *v1alpha1.Agent) (*v1alpha1.Agent, error) {
	raw, err := json.Marshal(edited)
	if err != nil {
		return nil, err
	}
	agent := &v1alpha1.Agent{}
	if err := json.Unmarshal(raw, agent); err != nil {
		return nil, err
	}
	agent.Name, agent.DeletionTimestamp, agent.Status = of.Name, of.DeletionTimestamp, of.Status
	return agent, nil
}

// patchAgent makes the Agent on the hub differ by what differs between before and
// after. It fails with errChanged when someone else changed what is in before;
// the principal writing the status meanwhile is no harm.
func patchAgent(ctx context.Context, h *cli.Hub, name string, before,
	after map[string]any) (*unstructured.Unstructured, error) {
	patch, err := mergePatch(before, after)
	if err != nil {
		return nil, err
	}
	for {
		now, err := h.Agents.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, err
		}
		if !reflect.DeepEqual(before, editable(now)) {
			return nil, errChanged
		}
		body, err := preconditioned(patch, now.GetResourceVersion())
		if err != nil {
			return nil, err
		}
		stored, err := h.Agents.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{
			FieldManager: "agentctl", FieldValidation: metav1.FieldValidationStrict,
		})
		if !apierrors.IsConflict(err) {
			return stored, err
		}
	}
}

func mergePatch(before, after map[string]any) ([]byte, error) {
	a, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreateMergePatch(a, b)
}

// preconditioned returns patch with the resourceVersion it is meant for.
func preconditioned(patch []byte, resourceVersion string) ([]byte, error) {
	var m map[string]any
	if err := json.Unmarshal(patch, &m); err != nil {
		return nil, err
	}
	if err := unstructured.SetNestedField(m, resourceVersion, "metadata", "resourceVersion"); err != nil {
		return nil, apierrors.NewBadRequest("metadata must be an object")
	}
	return json.Marshal(m)
}

// isRefusal reports whether err is about what the person wrote.
func isRefusal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// editable returns what of obj a person may change, and what names it.
func editable(obj *unstructured.Unstructured) map[string]any {
	meta := map[string]any{"name": obj.GetName(), "namespace": obj.GetNamespace()}
	for _, field := range []string{"labels", "annotations", "finalizers"} {
		if value, found, _ := unstructured.NestedFieldCopy(obj.Object, "metadata", field); found {
			meta[field] = value
		}
	}
	out := map[string]any{"apiVersion": obj.GetAPIVersion(), "kind": obj.GetKind(), "metadata": meta}
	if spec, found := obj.Object["spec"]; found {
		out["spec"] = spec
	}
	return out
}

// editHeader is what the editor shows above the object.
func editHeader(refusal error) string {
	var b strings.Builder
	b.WriteString("# Change the agent below. Lines that begin with '#' are left out; an empty file\n" +
		"# or the same text again changes nothing.\n#\n")
	if refusal != nil {
		fmt.Fprintf(&b, "# This was refused: %s\n#\n", cli.Problems(refusal))
	}
	return b.String()
}
