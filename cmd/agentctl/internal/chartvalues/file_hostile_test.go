package chartvalues

import (
	"strings"
	"testing"
)

// A file that comes from elsewhere says who the agent is, and nothing of what runs beside the owner's Argo CD.
func TestAFileSaysNothingButWhoTheAgentIs(t *testing.T) {
	t.Parallel()
	const head = "kind: SpokeInstall\nname: edge-1\nspiffeIDs: [spiffe://edge.example/argomesh/agent/edge-1]\n" +
		"principalID: spiffe://hub.example/argomesh/principal\nvalues:\n"
	const good = "  config:\n    name: edge-1\n    mode: managed\n" +
		"    principal: {address: 'hub.example:443', spiffe_ids: ['spiffe://hub.example/argomesh/principal']}\n"
	for what, values := range map[string]string{
		"no more":         good,
		"access":          good + "    access: {enabled: true, exec: true, secrets: masked}\n",
		"more namespaces": good + "    mapping: {namespaces: [team-a]}\n",
	} {
		if _, err := parseFile([]byte(head + values)); err != nil {
			t.Errorf("with %s: %v", what, err)
		}
	}
	for what, values := range map[string]string{
		"an image":                    good + "  image: {repository: evil.test/agent, digest: 'sha256:00'}\n",
		"a container of its own":      good + "  extraContainers: [{name: x, image: evil.test/x, volumeMounts: [{name: kubernetes-api, mountPath: /t}]}]\n",
		"another service account":     good + "  serviceAccount: {create: false, name: argocd-application-controller}\n",
		"a folder of the node":        good + "  extraVolumes: [{name: root, hostPath: {path: /}}]\n",
		"a policy":                    good + "    policy: {adopt: ['*/*'], operations: [sync, override]}\n",
		"rules of access":             good + "    access: {enabled: true, impersonate: ['system:admin']}\n",
		"access that is no switch":    good + "    access: all\n",
		"another hub than it names":   strings.Replace(good, "spiffe://hub.example", "spiffe://evil.test", 1),
		"two hubs":                    strings.Replace(good, "argomesh/principal'", "argomesh/principal', 'spiffe://evil.test/x'", 1),
		"another agent than it names": strings.Replace(good, "name: edge-1", "name: edge-2", 1),
		"another way to the hub":      strings.Replace(good, "{address", "{method: header, address", 1),
		"a creator of namespaces":     good + "    mapping: {namespaces: ['*'], create_namespaces: true}\n",
		"where the log goes":          good + "    tracing: {endpoint: 'https://evil.test'}\n",
		"no values":                   "  {}\n",
	} {
		if _, err := parseFile([]byte(head + values)); err == nil {
			t.Errorf("a file with %s is taken", what)
		}
	}
}
