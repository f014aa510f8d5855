package registration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/argomesh/argomesh/mesh/spire"
)

// ClassName returns the class of the spire-controller-manager that looks after a cluster, as the
// ClusterSPIFFEIDs there that are not ours name it: a manager that was given a class ignores
// objects of another, and of none. Empty where none of them names one. Where they name several
// the error says so.
func (o *Objects) ClassName(ctx context.Context) (string, error) {
	list, err := o.List(ctx, spire.ClusterSPIFFEIDKind, "!"+spire.RegistrationLabel)
	if err != nil {
		return "", err
	}
	var classes []string
	for _, obj := range list {
		if class, _, _ := unstructured.NestedString(obj.Object, "spec", "className"); class != "" {
			classes = append(classes, class)
		}
	}
	slices.Sort(classes)
	switch classes = slices.Compact(classes); len(classes) {
	case 0:
		return "", nil
	case 1:
		return classes[0], nil
	}
	return "", fmt.Errorf("--class-name is missing: the ClusterSPIFFEIDs of the cluster at %s are of the classes %s, each for"+
		" another spire-controller-manager", o.Host, strings.Join(classes, ", "))
}
