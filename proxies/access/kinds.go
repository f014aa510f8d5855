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
	kindsOf("", read, "events", "limitranges", "namespaces", "persistentvolumes", "resourcequotas"),
	kindsOf("", readWrite, "configmaps", "endpoints", "nodes", "persistentvolumeclaims", "pods", "podtemplates",
		"replicationcontrollers",
		"secrets", "serviceaccounts", "services"),
	kindsOf("", get, "namespaces/status", "nodes/status", "persistentvolumeclaims/status", "persistentvolumes/status",
		"pods/log", "pods/status",
		"replicationcontrollers/status", "resourcequotas/status", "services/status"),
	kindsOf("", scale, "pods/ephemeralcontainers", "replicationcontrollers/scale"),
	kindsOf("", create, "pods/eviction", "serviceaccounts/token"),
	kindsOf("", connect, "pods/attach", "pods/exec", "pods/portforward"),
	kindsOf("", proxied, "nodes/proxy", "pods/proxy", "services/proxy"),
	kindsOf("admissionregistration.k8s.io", read, "mutatingwebhookconfigurations", "validatingadmissionpolicies",
		"validatingadmissionpolicybindings", "validatingwebhookconfigurations"),
	kindsOf("apiextensions.k8s.io", read, "customresourcedefinitions"),
	kindsOf("apiregistration.k8s.io", read, "apiservices"),
	kindsOf("apps", read, "controllerrevisions"),
	kindsOf("apps", readWrite, "daemonsets", "deployments", "replicasets", "statefulsets"),
	kindsOf("apps", get, "daemonsets/status", "deployments/status", "replicasets/status", "statefulsets/status"),
	kindsOf("apps", scale, "deployments/scale", "replicasets/scale", "statefulsets/scale"),
	kindsOf("argoproj.io", read, "applications", "applicationsets", "appprojects"),
	kindsOf("argoproj.io", readWrite, "analysisruns", "analysistemplates", "experiments", "rollouts"),
	kindsOf("argoproj.io", get, "applications/status", "rollouts/status"),
	kindsOf("argoproj.io", scale, "rollouts/scale"),
	kindsOf("authentication.k8s.io", create, "selfsubjectreviews", "tokenreviews"),
	kindsOf("authorization.k8s.io", create, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
	kindsOf("autoscaling", readWrite, "horizontalpodautoscalers"),
	kindsOf("autoscaling", get, "horizontalpodautoscalers/status"),
	kindsOf("batch", readWrite, "cronjobs", "jobs"),
	kindsOf("batch", get, "cronjobs/status", "jobs/status"),
	kindsOf("certificates.k8s.io", slices.Concat(read, create), "certificatesigningrequests"),
	kindsOf("coordination.k8s.io", read, "leases"),
	kindsOf("discovery.k8s.io", read, "endpointslices"),
	kindsOf("events.k8s.io", read, "events"),
	kindsOf("metrics.k8s.io", read, "nodes", "pods"),
	kindsOf("networking.k8s.io", read, "ingressclasses"),
	kindsOf("networking.k8s.io", readWrite, "ingresses", "networkpolicies"),
	kindsOf("networking.k8s.io", get, "ingresses/status"),
	kindsOf("policy", readWrite, "poddisruptionbudgets"),
	kindsOf("policy", get, "poddisruptionbudgets/status"),
	kindsOf("rbac.authorization.k8s.io", read, "clusterrolebindings", "clusterroles", "rolebindings", "roles"),
	kindsOf("scheduling.k8s.io", read, "priorityclasses"),
	kindsOf("storage.k8s.io", read, "csidrivers", "csinodes", "storageclasses", "volumeattachments"),
)

// kindsOf returns resources of a group, each with the same verbs.
func kindsOf(group string, verbs []string, resources ...string) []kind {
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
