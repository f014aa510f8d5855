package install

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
)

// OldestKubernetes is the oldest that is supported, on either side.
const OldestKubernetes = "1.30"

// check looks for what must be there before a chart is installed, and reports all that is
// missing at once. Nothing is written.
func (s *side) check(ctx context.Context) error {
	has, err := s.client.Discovery().ServerVersion()
	if err != nil {
		return s.explain(err, "reach the Kubernetes API")
	}
	var problems []error
	oldest := version.MustParseGeneric(OldestKubernetes)
	if is, err := version.ParseGeneric(has.GitVersion); err == nil && is.LessThan(oldest) {
		problems = append(problems, fmt.Errorf("the Kubernetes API at %s is of %s: %s or newer is needed", s.config.Host,
			has.GitVersion, OldestKubernetes))
	}
	namespace, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		problems = append(problems,
			fmt.Errorf("namespace %s does not exist: install Argo CD there first, have --with argocd bring it, or name"+
				" its namespace with --namespace", s.namespace))
	case apierrors.IsForbidden(err): // whether it is there, the API server says when objects are tried
	case err != nil:
		return s.explain(err, "look at namespace "+s.namespace)
	case namespace.DeletionTimestamp != nil:
		problems = append(problems, fmt.Errorf("namespace %s is being deleted: wait until it is gone", s.namespace))
	}
	argo, err := cli.Serves(s.client.Discovery(), cli.ApplicationResource)
	if err != nil {
		return s.explain(err, "look for Argo CD")
	}
	if !argo {
		problems = append(problems,
			errors.New("Argo CD is not there (its resource applications.argoproj.io): install it first, or have --with argocd bring it"))
	}
	return errors.Join(problems...)
}
