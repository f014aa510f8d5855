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

// oldest is the oldest Kubernetes that is supported, on either side.
const oldest = "1.30"

// check looks for what must be there before a chart is installed, and reports all that is
// missing at once. Nothing is written.
func (s *side) check(ctx context.Context) error {
	has, err := s.client.Discovery().ServerVersion()
	if err != nil {
		return s.explain(err, "reach the Kubernetes API")
	}
	var problems []error
	if is, err := version.ParseGeneric(has.GitVersion); err == nil && is.LessThan(version.MustParseGeneric(oldest)) {
		problems = append(problems, fmt.Errorf("the Kubernetes API at %s is of %s: %s or newer is needed", s.config.Host,
			has.GitVersion, oldest))
	}
	namespace, err := s.client.CoreV1().Namespaces().Get(ctx, s.namespace, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		problems = append(problems,
			fmt.Errorf("namespace %s does not exist: install Argo CD there first, or name its namespace"+
				" with --namespace", s.namespace))
	case apierrors.IsForbidden(err): // whether it is there, the API server says when objects are tried
	case err != nil:
		return s.explain(err, "look at namespace "+s.namespace)
	case namespace.DeletionTimestamp != nil:
		problems = append(problems, fmt.Errorf("namespace %s is being deleted: wait until it is gone", s.namespace))
	}
	argo, err := s.argoCD()
	if err != nil {
		return s.explain(err, "look for Argo CD")
	}
	if !argo {
		problems = append(problems,
			errors.New("Argo CD is not there (its resource applications.argoproj.io): install it first"))
	}
	return errors.Join(problems...)
}

// argoCD reports whether the definitions of Argo CD are there.
func (s *side) argoCD() (bool, error) {
	group := cli.ApplicationResource.GroupVersion().String()
	list, err := s.client.Discovery().ServerResourcesForGroupVersion(group)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, r := range list.APIResources {
		if r.Name == cli.ApplicationResource.Resource {
			return true, nil
		}
	}
	return false, nil
}
