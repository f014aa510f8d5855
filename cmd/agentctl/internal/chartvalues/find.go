package chartvalues

import (
	"cmp"
	"context"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/argomesh/argomesh/charts"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/cli"
	"github.com/argomesh/argomesh/cmd/agentctl/internal/registration"
	"github.com/argomesh/argomesh/identity"
	"github.com/argomesh/argomesh/mesh/spire"
)

// PrincipalRegistration is the name of the principal's registration with SPIRE.
const PrincipalRegistration = "principal"

// FindPrincipal fills in what is empty of where agents reach the principal of a hub, and of its
// SPIFFE ID: what `agentctl hub install` was told and has registered, else its load balancer. What is
// not known stays empty.
func FindPrincipal(ctx context.Context, hub *cli.Connection, namespace string, address, id *string) {
	if *id == "" {
		*id = registeredPrincipal(ctx, hub)
	}
	if *address == "" {
		*address = addressOf(ctx, hub, namespace)
	}
}

// registeredPrincipal returns the SPIFFE ID that `agentctl hub install` registered for the
// principal of a hub; "" where it is not known.
func registeredPrincipal(ctx context.Context, hub *cli.Connection) string {
	objects, err := registration.NewObjects(hub)
	if err != nil {
		return ""
	}
	list, err := objects.List(ctx, spire.ClusterSPIFFEIDKind, spire.RegistrationLabel+"="+PrincipalRegistration)
	if err == nil && len(list) == 0 { // in Istio by its service account
		list, err = objects.List(ctx, spire.ClusterSPIFFEIDKind, spire.RegistrationLabel+"="+charts.Principal)
	}
	if err != nil || len(list) != 1 {
		return ""
	}
	text, _, _ := unstructured.NestedString(list[0].Object, "spec", "spiffeIDTemplate")
	if _, err := identity.ParseID(text); err != nil {
		return ""
	}
	return text
}

// addressOf returns the address by which agents reach the principal of a hub, if its Service says one, or has one that
// others can reach; "" if not.
func addressOf(ctx context.Context, hub *cli.Connection, namespace string) string {
	_, client, err := hub.Client()
	if err != nil {
		return ""
	}
	service, err := client.CoreV1().Services(namespace).Get(ctx, charts.Principal+"-stream", metav1.GetOptions{})
	if err != nil {
		return ""
	}
	if named := service.Annotations[addressAnnotation]; isAddress(named) {
		return named
	}
	return balancerOf(service)
}

// Balancer returns the host and the first port of a Service, if it has a load balancer that others can reach; "" if
// not.
func Balancer(ctx context.Context, client kubernetes.Interface, namespace, name string) string {
	service, err := client.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	return balancerOf(service)
}

func balancerOf(service *corev1.Service) string {
	if len(service.Spec.Ports) == 0 || len(service.Status.LoadBalancer.Ingress) == 0 {
		return ""
	}
	at := service.Status.LoadBalancer.Ingress[0]
	return net.JoinHostPort(cmp.Or(at.Hostname, at.IP), strconv.Itoa(int(service.Spec.Ports[0].Port)))
}
