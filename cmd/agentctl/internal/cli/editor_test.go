package cli

import (
	"os"
	"strings"
	"testing"
)

func TestEditorKeepsWhatIsNoComment(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	// An editor with arguments and quotes, as people have them.
	t.Setenv("KUBE_EDITOR", `sed -i -e "s/one two/three/" -e '$a # remark'`)
	file, err := NewEditFile("edge-1")
	if err != nil {
		t.Fatal(err)
	}
	got, err := file.Edit(t.Context(), Streams{}, "# first line\n# This was refused: line one line two\n", []byte("a: one two\nb: '# no comment'\n"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "a: three\nb: '# no comment'\n"; string(got) != want {
		t.Errorf("edit() = %q, want %q", got, want)
	}
	raw, err := os.ReadFile(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), "# This was refused: line one line two\n") {
		t.Errorf("the editor was not shown why:\n%s", raw)
	}
	if info, err := os.Stat(file.Path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file has mode %v, %v; want it readable by its owner only", info.Mode(), err)
	}
	file.Remove()
	if _, err := os.Stat(file.Path); !os.IsNotExist(err) {
		t.Errorf("stat after remove: %v", err)
	}
}
