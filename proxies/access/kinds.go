package access

import "slices"

// kind is one resource or subresource, and what may be done with it.
type kind struct {
	group, resource string
	verbs           []string
}

// Verbs of kinds.
var (
	read      = reads // and nothing else
	readWrite = slices.Concat(reads, writes)
	get       = []string{"get"}
	scale     = []string{"get", "update", "patch"}
	create    = []string{"create"}
	// connect is what upgraded connections are authorized by: get for WebSocket,
	// create for SPDY, and lately create for both.
	connect = []string{"get", "create"}
	// proxied are the verbs that a proxy makes of HTTP's methods.
	proxied = []string{"get", "create", "update", "patch", "delete"}
)

// commonKinds are what a rule without groups and resources covers: what Kubernetes
// and Argo CD bring along and an Application is usually made of. Those that can be
// written are namespaced and give no one rights. What has a switch of its own is
// here too, since the switch decides.
var commonKinds = slices.Concat(
	of("", read, "events", "limitranges", "namespaces", "persistentvolumes", "resourcequotas"),
	of("", readWrite, "configmaps", "endpoints", "nodes", "persistentvolumeclaims", "pods", "podtemplates",
		"replicationcontrollers",
		"secrets", "serviceaccounts", "services"),
	of("", get, "namespaces/status", "nodes/status", "persistentvolumeclaims/status", "persistentvolumes/status",
		"pods/log", "pods/status",
		"replicationcontrollers/status", "resourcequotas/status", "services/status"),
	of("", scale, "pods/ephemeralcontainers", "replicationcontrollers/scale"),
	of("", create, "pods/eviction", "serviceaccounts/token"),
	of("", connect, "pods/attach", "pods/exec", "pods/portforward"),
	of("", proxied, "nodes/proxy", "pods/proxy", "services/proxy"),
	of("admissionregistration.k8s.io", read, "mutatingwebhookconfigurations", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "validatingwebhookconfigurations"),
	of("apiextensions.k8s.io", read, "customresourcedefinitions"),
	of("apiregistration.k8s.io", read, "apiservices"),
	of("apps", read, "controllerrevisions"),
	of("apps", readWrite, "daemonsets", "deployments", "replicasets", "statefulsets"),
	of("apps", get, "daemonsets/status", "deployments/status", "replicasets/status", "statefulsets/status"),
	of("apps", scale, "deployments/scale", "replicasets/scale", "statefulsets/scale"),
	of("argoproj.io", read, "applications", "applicationsets", "appprojects"),
	of("argoproj.io", readWrite, "analysisruns", "analysistemplates", "experiments", "rollouts"),
	of("argoproj.io", get, "applications/status", "rollouts/status"),
	of("argoproj.io", scale, "rollouts/scale"),
	of("authentication.k8s.io", create, "selfsubjectreviews", "tokenreviews"),
	of("authorization.k8s.io", create, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
	of("autoscaling", readWrite, "horizontalpodautoscalers"),
	of("autoscaling", get, "horizontalpodautoscalers/status"),
	of("batch", readWrite, "cronjobs", "jobs"),
	of("batch", get, "cronjobs/status", "jobs/status"),
	of("certificates.k8s.io", slices.Concat(read, create), "certificatesigningrequests"),
	of("coordination.k8s.io", read, "leases"),
	of("discovery.k8s.io", read, "endpointslices"),
	of("events.k8s.io", read, "events"),
	of("metrics.k8s.io", read, "nodes", "pods"),
	of("networking.k8s.io", read, "ingressclasses"),
	of("networking.k8s.io", readWrite, "ingresses", "networkpolicies"),
	of("networking.k8s.io", get, "ingresses/status"),
	of("policy", readWrite, "poddisruptionbudgets"),
	of("policy", get, "poddisruptionbudgets/status"),
	of("rbac.authorization.k8s.io", read, "clusterrolebindings", "clusterroles", "rolebindings", "roles"),
	of("scheduling.k8s.io", read, "priorityclasses"),
	of("storage.k8s.io", read, "csidrivers", "csinodes", "storageclasses", "volumeattachments"),
)

func of(group string, verbs []string, resources ...string) []kind {
	kinds := make([]kind, len(resources))
	for i, resource := range resources {
		kinds[i] = kind{group, resource, verbs}
	}
	return kinds
}

// groupResource is a resource or subresource of a group.
type groupResource struct{ group, resource string }

// commonVerbs has the verbs of the common kinds.
var commonVerbs = func() map[groupResource][]string {
	out := make(map[groupResource][]string, len(commonKinds))
	for _, k := range commonKinds {
		out[groupResource{k.group, k.resource}] = k.verbs
	}
	return out
}()
