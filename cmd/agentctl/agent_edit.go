package main

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
)

type editCommand struct {
	std    streams
	conn   *connection
	output *output
	yes    bool
}

func newEditCommand(std streams, conn *connection) *cobra.Command {
	c := &editCommand{std: std, conn: conn, output: newOutput("json", "yaml", "name")}
	cmd := &cobra.Command{
		Use:   "edit NAME",
		Short: "Change an agent in your editor",
		Long: "Change an agent in the editor that KUBE_EDITOR or EDITOR names, vi when neither is\n" +
			"set. What the hub refuses is shown in the editor again, with the reason.\n\n" +
			"A change that may delete workloads is asked about, and needs --yes where there is no terminal:\n" +
			"of deletionPolicy while the Agent is being deleted, of what is held, of the labels by which an\n" +
			"ApplicationSet selects the cluster, or one that lets an agent in for which deletions wait.",
		Example:           "  KUBE_EDITOR=\"code --wait\" agentctl agent edit edge-1",
		Args:              names(true),
		ValidArgsFunction: conn.completeName,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	c.output.addFlag(cmd)
	cmd.Flags().BoolVarP(&c.yes, "yes", "y", false, "do not ask before a change that may delete workloads")
	return cmd
}

func (c *editCommand) run(ctx context.Context, name string) error {
	h, err := c.conn.hub()
	if err != nil {
		return err
	}
	doing := fmt.Sprintf("edit agent %q", name)
	obj, err := h.agents.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return h.explain(err, doing)
	}
	text, err := yaml.Marshal(editable(obj))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	file, err := newEditFile(name)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	stored, err := c.untilAccepted(ctx, h, obj, text, file)
	switch {
	case errors.Is(err, errNoChange):
		file.remove()
		_, err = fmt.Fprintln(c.std.err, "Edit cancelled, no changes made.")
		return err
	case err != nil:
		return fmt.Errorf("%w; your version is in %s", h.explain(err, doing), file.path)
	}
	file.remove()
	return c.output.done(c.std.out, stored, "edited")
}

var (
	errNoChange = errors.New("no change")
	errChanged  = errors.New("it was changed on the hub meanwhile: edit it again")
)

// untilAccepted opens the editor until the hub takes what it left, or it left
// the same text again.
func (c *editCommand) untilAccepted(ctx context.Context, h *hub, obj *unstructured.Unstructured, text []byte, file editFile) (*unstructured.Unstructured, error) {
	before := editable(obj)
	agent, err := parseAgent(obj)
	if err != nil {
		return nil, err
	}
	var refusal error
	for {
		left, err := file.edit(ctx, c.std, editHeader(refusal), text)
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
		if ok, err := h.agreesTo(ctx, c.std, c.yes, agentChange{before: agent, after: edited}); err != nil || !ok {
			return nil, cmp.Or(err, errNoChange)
		}
		stored, err := h.change(ctx, obj.GetName(), before, after)
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

// change makes the Agent on the hub differ by what differs between before and
// after. It fails with errChanged when somebody else changed what is in before;
// the principal writing the status meanwhile is no harm.
func (h *hub) change(ctx context.Context, name string, before, after map[string]any) (*unstructured.Unstructured, error) {
	patch, err := mergePatch(before, after)
	if err != nil {
		return nil, err
	}
	for {
		now, err := h.agents.Get(ctx, name, metav1.GetOptions{})
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
		stored, err := h.agents.Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{
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
		fmt.Fprintf(&b, "# This was refused: %s\n#\n", problems(refusal))
	}
	return b.String()
}
