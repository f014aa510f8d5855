package cli

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/argomesh/argomesh/cmd/internal/reasons"
)

// Explain returns err, which doing met, as one line with the cure.
func (h *Hub) Explain(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case IsCRDMissing(err):
		return fmt.Errorf("%s: the hub at %s does not have the Agent resource: install the principal there with \"agentctl hub install\", or choose another hub with --context", doing, h.Host)
	case isNamespaceMissing(err):
		return fmt.Errorf("%s: namespace %s does not exist on the hub: create it, or name the one of Argo CD with --namespace", doing, h.Namespace)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: not found in namespace %s; \"agentctl agent list\" shows those that exist", doing, h.Namespace)
	}
	return ExplainAPI(err, doing, "hub", h.Host)
}

// ExplainAPI returns err, which doing met at the Kubernetes API of host, as one line with
// the cure, for all that does not depend on what was asked for. What is what a person
// calls it: the hub, or a cluster.
func ExplainAPI(err error, doing, what, host string) error {
	var unreachable *url.Error
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: interrupted", doing)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: the %s at %s does not accept the credentials of the kubeconfig: log in again, or choose another --context or --user", doing, what, host)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %s; ask the %s's administrator for that right, or choose another --context or --user", doing,
			OneLine(err), what)
	case apierrors.IsConflict(err):
		return fmt.Errorf("%s: another writer changed it meanwhile: run the command again", doing)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &unreachable) &&
		unreachable.Timeout(), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return fmt.Errorf("%s: the %s at %s did not answer in time: check it, or raise --request-timeout", doing, what, host)
	case errors.As(err, &unreachable):
		return fmt.Errorf("%s: the %s at %s cannot be reached: %s; check that it runs, or choose another with --kubeconfig or --context", doing, what, host, OneLine(unreachable.Err))
	case apierrors.IsInvalid(err):
		return fmt.Errorf("%s: %s", doing, Problems(err))
	default:
		return fmt.Errorf("%s: %s", doing, OneLine(err))
	}
}

// Problems returns what the hub found invalid, without the preface.
func Problems(err error) string {
	status := statusOf(err)
	if status == nil || status.Details == nil || len(status.Details.Causes) == 0 {
		return OneLine(err)
	}
	out := make([]string, len(status.Details.Causes))
	for i, cause := range status.Details.Causes {
		if out[i] = cause.Message; cause.Field != "" && cause.Field != "<nil>" { // what a rule about the whole object has
			out[i] = cause.Field + ": " + cause.Message
		}
	}
	return strings.Join(out, "; ")
}

// IsCRDMissing tells a server that does not know Agents from an Agent that does
// not exist: only the latter's answer comes from the resource itself, and names
// the Agent.
func IsCRDMissing(err error) bool {
	status := statusOf(err)
	if status == nil || status.Reason != metav1.StatusReasonNotFound {
		return false
	}
	return status.Details == nil || status.Details.Name == "" ||
		apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

func isNamespaceMissing(err error) bool {
	status := statusOf(err)
	return status != nil && status.Reason == metav1.StatusReasonNotFound && status.Details != nil &&
		status.Details.Kind == "namespaces"
}

func statusOf(err error) *metav1.Status {
	var api apierrors.APIStatus
	if !errors.As(err, &api) {
		return nil
	}
	status := api.Status()
	return &status
}

// ExplainKubeconfig returns an error met before anything was contacted.
func ExplainKubeconfig(err error, rules *clientcmd.ClientConfigLoadingRules) error {
	const cure = "choose another with --kubeconfig or --context"
	if clientcmd.IsEmptyConfig(err) {
		if file := rules.ExplicitPath; file != "" {
			return fmt.Errorf("kubeconfig %s names no cluster: %s", file, cure)
		}
		return errors.New("no kubeconfig: name the hub's with --kubeconfig or the KUBECONFIG environment variable")
	}
	var missing *os.PathError
	if errors.As(err, &missing) {
		return fmt.Errorf("kubeconfig %s: %w: %s", missing.Path, missing.Err, cure)
	}
	return fmt.Errorf("kubeconfig: %s: %s", OneLine(err), cure)
}

// OneLine returns the text of err without line breaks, and without what else a terminal
// obeys: it may be the words of anyone who answered.
func OneLine(err error) string { return CleanText(err.Error()) }

// JoinOr returns "a, b or c".
func JoinOr(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// SeeReason returns where a reason is explained, after a separator; empty for one that this
// release does not know.
func SeeReason(reason string) string {
	if see := reasons.See(reason); see != "" {
		return "; " + see
	}
	return ""
}
