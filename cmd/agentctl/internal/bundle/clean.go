package bundle

import (
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// shownAnnotations are those whose values a reader needs and that hold no secret.
var shownAnnotations = []string{
	"argomesh.io/accept-deletions", "checksum/config", "deployment.kubernetes.io/revision", "helm.sh/hook",
	"helm.sh/resource-policy", "meta.helm.sh/release-name", "meta.helm.sh/release-namespace",
}

// shownFlags are arguments whose values a reader needs and that hold no secret.
var shownFlags = []string{"--config", "--output", "--node-id", "--xds", "--workload-api", "--admin", "--stats",
	"--memory",
	"--max-connections", "--concurrency", "--config-path"}

// Clean returns an object without what may hold a secret and is of no use to a reader. Of a
// Secret it returns nil.
func Clean(o *unstructured.Unstructured) *unstructured.Unstructured {
	if o.GetKind() == "Secret" {
		return nil
	}
	out := o.DeepCopy()
	unstructured.RemoveNestedField(out.Object, "metadata", "managedFields")
	cleanMap(out.Object)
	return out
}

// cleanMap cleans what is at any depth, such as the metadata of a pod template.
func cleanMap(m map[string]any) {
	for key, value := range m {
		switch key {
		case "annotations":
			if annotations, ok := value.(map[string]any); ok {
				cleanAnnotations(annotations)
				continue
			}
		case "env":
			if list, ok := value.([]any); ok {
				cleanEnv(list)
				continue
			}
		case "args", "command":
			if list, ok := value.([]any); ok {
				cleanArguments(list)
				continue
			}
		}
		cleanValue(value)
	}
}

func cleanValue(value any) {
	switch v := value.(type) {
	case map[string]any:
		cleanMap(v)
	case []any:
		for _, item := range v {
			cleanValue(item)
		}
	}
}

func cleanAnnotations(m map[string]any) {
	for key := range m {
		if !slices.Contains(shownAnnotations, key) {
			m[key] = leftOut
		}
	}
}

// cleanEnv keeps the names of variables, and where their values come from.
func cleanEnv(list []any) {
	for _, item := range list {
		if variable, ok := item.(map[string]any); ok && variable["value"] != nil {
			variable["value"] = leftOut
		}
	}
}

// cleanArguments keeps the names of flags, and the values of those that are known. A word that is
// no flag may be the value of the flag before it.
func cleanArguments(list []any) {
	shown := false
	for i, item := range list {
		text, ok := item.(string)
		flag, _, valued := strings.Cut(text, "=")
		switch {
		case !ok, strings.HasPrefix(flag, "-") && slices.Contains(shownFlags, flag):
			shown = ok && !valued
			continue
		case strings.HasPrefix(flag, "-") && valued:
			list[i] = flagAlone(flag) + "=" + leftOut
		case strings.HasPrefix(flag, "-"):
			list[i] = flagAlone(flag)
		case !shown:
			list[i] = leftOut
		}
		shown = false
	}
}

// bareFlag is a flag that has no value in the same word: after one dash there may be one, as in -apassword.
var bareFlag = regexp.MustCompile(`^(-[A-Za-z]|--[A-Za-z][A-Za-z0-9_.-]*)$`)

// flagAlone returns a flag without what else is in its word.
func flagAlone(word string) string {
	switch {
	case bareFlag.MatchString(word):
		return word
	case len(word) > 2 && word[1] != '-' && bareFlag.MatchString(word[:2]):
		return word[:2] + leftOut
	}
	return leftOut
}

// keysOf returns the structure of values, without the values.
func keysOf(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, item := range v {
			out[key] = keysOf(item)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = keysOf(item)
		}
		return out
	}
	return leftOut
}
