from __future__ import annotations

import math

import numpy as np
import pytest

from escudo.causal import SEM
from escudo.errors import InputError, ParseError

AB = "A ~ neg: 0.25, pos: 0.75\nB ~ 0: 0.5, 1: 0.25, 2: 0.25\nC ~ false: 0.5, true: 0.5\n"


def law(definition: str, name: str = "X", **do: object) -> dict:
    """The law of a definition added to A, B and C, without its zeros."""
    return {value: p for value, p in SEM.parse(AB + definition).probability(name, do=do).items() if p > 0}


class TestReading:
    def test_values_are_kept_in_the_order_written_and_numbers_sorted(self):
        sem = SEM.parse(
            "S ~ pos: 0.1, neg: 0.9\nN ~ 10: 0.5, 9: 0.5\nT ~ true: 1, false: 0\nM ~ (b, 2): 0.5, (a, 1): 0.5"
        )
        assert sem.range("S") == ("pos", "neg")
        assert sem.range("N") == (9, 10)
        assert sem.range("T") == (False, True)
        assert sem.range("M") == (("b", 2), ("a", 1))

    def test_a_joint_law_names_the_combinations_that_happen(self):
        sem = SEM.parse("R1, R2 ~ (neg, neg): 0.5, (pos, pos): 0.3,\n  (neg, pos): 0.2")
        assert sem.probability(["R1", "R2"]).array == pytest.approx(np.array([[0.5, 0.2], [0.0, 0.3]]))
        assert len(sem.population) == 1

    def test_definitions_may_come_in_any_order(self):
        sem = SEM.parse("O := D\nD := R\nR ~ a: 0.5, b: 0.5")
        assert sem.variables == ("R", "D", "O")

    def test_a_tilde_is_the_population_and_a_coin_is_the_equations_own(self):
        sem = SEM.parse("U ~ a: 0.5, b: 0.5\nW := coin(0.5)")
        assert sem.exogenous == ("U",)
        assert sem.equation("W").parents == ()

    def test_comments_blank_lines_carriage_returns_and_indentation_do_not_matter(self):
        sem = SEM.parse(
            "\r\n  # a comment\r\n\tR ~ a: 0.5, # half\r\n      b: 0.5\r\n\r\n  X := (R\r\n   = a) \\\n and true"
        )
        assert sem.probability({"X": True}) == 0.5

    def test_a_table_reads_its_rows_from_the_top(self):
        sem = SEM.parse(
            AB + "X | A, B ~\n  neg, 0 -> low: 0.9, high: 0.1\n  neg, _ -> high: 1\n  _, _ -> low: 1\nY := X"
        )
        assert sem.equation("X").table.tolist() == [[[0.9, 0.1], [0, 1], [0, 1]], [[1, 0], [1, 0], [1, 0]]]

    def test_the_first_row_may_stand_beside_the_table_s_name(self):
        assert law("X | A ~ neg -> 0: 1\npos -> 1: 1") == {0: 0.25, 1: 0.75}

    @pytest.mark.parametrize(
        ("number", "value"),
        [
            ("0.5", 0.5),
            (".5", 0.5),
            ("5e-1", 0.5),
            ("1/3", 1 / 3),
            ("(1 + 1) / 6", 1 / 3),
            ("exp(-1)", math.exp(-1)),
            ("ln(2)", math.log(2)),
            ("sqrt(0.25)", 0.5),
            ("1 - exp(-ln(2))", 0.5),
            ("--0.5", 0.5),
            ("2 * 0.125 * 2", 0.5),
        ],
    )
    def test_numbers_may_be_decimals_fractions_and_logarithms(self, number, value):
        assert law(f"X := coin({number})")[True] == pytest.approx(value)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("A", {"neg": 0.25, "pos": 0.75}),
            ("A = pos", {False: 0.25, True: 0.75}),
            ("A != pos", {True: 0.25, False: 0.75}),
            ("not C", {False: 0.5, True: 0.5}),
            ("not not C and C", {False: 0.5, True: 0.5}),
            ("C or A = pos and B = 0", {True: 0.5 + 0.5 * 0.375, False: 0.5 - 0.5 * 0.375}),
            ("B + 1", {1: 0.5, 2: 0.25, 3: 0.25}),
            ("1 - B - 1", {0: 0.5, -1: 0.25, -2: 0.25}),
            ("-B * 2", {0: 0.5, -2: 0.25, -4: 0.25}),
            ("7 // 2 * B", {0: 0.5, 3: 0.25, 6: 0.25}),
            ("(B - 3) // 2", {-2: 0.5, -1: 0.5}),
            ("-7 % (B + 2)", {1: 0.75, 2: 0.25}),
            ("abs(B - 1)", {0: 0.25, 1: 0.75}),
            ("min(B, 1)", {0: 0.5, 1: 0.5}),
            ("max(B, 1, 0)", {1: 0.75, 2: 0.25}),
            ("sum(B, B, 1)", {1: 0.5, 3: 0.25, 5: 0.25}),
            ("count(A = pos, B = 0)", {0: 0.125, 1: 0.5, 2: 0.375}),
            ("count(C)", {0: 0.5, 1: 0.5}),
            ("any((C), A = pos)", {True: 0.875, False: 0.125}),
            ("all(C, (A = pos))", {True: 0.375, False: 0.625}),
            ('"yes" if B >= 1 else "no"', {"no": 0.5, "yes": 0.5}),
            ("1 if C else 2 if A = neg else 3", {1: 0.5, 2: 0.125, 3: 0.375}),
            ("(A, C)", {("neg", False): 0.125, ("neg", True): 0.125, ("pos", False): 0.375, ("pos", True): 0.375}),
            ("(C,)", {(False,): 0.5, (True,): 0.5}),
            ("tuple(C, 1)", {(False, 1): 0.5, (True, 1): 0.5}),
            ("(A, 1) = (pos, 1)", {False: 0.25, True: 0.75}),
            ("B < 1", {True: 0.5, False: 0.5}),
            ("B <= 1", {True: 0.75, False: 0.25}),
            ("bernoulli(0.25)", {0: 0.75, 1: 0.25}),
            ("choose(A, B)", {"neg": 0.125, "pos": 0.375, 0: 0.25, 1: 0.125, 2: 0.125}),
            ("choose(A: 0.5, pos: 0.5)", {"neg": 0.125, "pos": 0.875}),
            ("True", {True: 1.0}),
            ('"A"', {"A": 1.0}),
        ],
    )
    def test_expressions_mean_what_they_say(self, text, expected):
        answer = law(f"X := {text}")
        assert {(type(key), key): value for key, value in answer.items()} == pytest.approx(
            {(type(key), key): value for key, value in expected.items()}
        )

    def test_one_test_applies_to_every_name_before_it(self):
        text = (
            "R[1..4] ~ a: 0.5, b: 0.5\nX := count(R1, R2 = a, R3, R4 = b)\nY := count(R1 = a, R2 = a, R3 = b, R4 = b)"
        )
        sem = SEM.parse(text)
        assert sem.equation("X").table.tolist() == sem.equation("Y").table.tolist()

    def test_a_name_in_brackets_is_a_condition_by_itself(self):
        assert law("X := count((C), A = pos)", C=True, A="pos") == {2: 1.0}

    def test_draws_written_twice_are_drawn_twice(self):
        assert law("X := count(coin(0.5), coin(0.5))") == {0: 0.25, 1: 0.5, 2: 0.25}
        assert law("W := coin(0.5)\nX := count(W, W)") == {0: 0.5, 2: 0.5}

    def test_mechanisms_inside_a_condition_are_used_where_it_holds(self):
        sem = SEM.parse(
            "X ~ 0: 0.5, 1: 0.5\nY := randomised_response(X, epsilon = ln(2))\n"
            "Z := randomised_response(X, epsilon = ln(2)) if Y = 0 else randomised_response(X, epsilon = ln(3))"
        )
        assert sem.equation("Z").parents == ("Y", "X")
        assert sem.equation("Z").table[0] == pytest.approx(np.array([[2 / 3, 1 / 3], [1 / 3, 2 / 3]]))
        assert sem.equation("Z").table[1] == pytest.approx(np.array([[3 / 4, 1 / 4], [1 / 4, 3 / 4]]))

    def test_candidates_are_labelled_or_numbered(self):
        labelled = law('X := exponential_mechanism(yes: 2, "no, thanks": 0, epsilon = ln(4))')
        assert labelled == pytest.approx({"yes": 0.8, "no, thanks": 0.2})
        assert law("X := exponential_mechanism(2, 0, epsilon = ln(4))") == pytest.approx({1: 0.8, 2: 0.2})
        assert law("X := report_noisy_max(0, 0, epsilon = 1, noise = geometric)") == pytest.approx({1: 0.5, 2: 0.5})
        assert law("X := report_noisy_max(a: B, b: B, epsilon = 1)") == pytest.approx({"a": 0.5, "b": 0.5})

    def test_both_spellings_of_randomised_response_are_one_mechanism(self):
        text = "X := randomised_response(A, epsilon = 1)"
        assert SEM.parse(AB + text) == SEM.parse(AB + text.replace("ised", "ized"))

    def test_families_stand_for_numbered_variables(self):
        sem = SEM.parse(
            "X[0..2] ~ a: 0.5, b: 0.5\n"
            "Y[i in 1..2] := (X[i], X[i - 1], i)\n"
            "W[i in 1..2] | X[i] ~\n  a -> 0: 1\n  b -> 1: 1\n"
            "V[1..2] := coin(1/4)\n"
            "T := sum(W[1..2], 5)"
        )
        assert sem.variables[:3] == ("X0", "X1", "X2")
        assert sem.equation("Y2").parents == ("X2", "X1")
        assert ("b", "a", 2) in sem.range("Y2")
        assert sem.equation("W2").parents == ("X2",)
        assert sem.range("T") == (5, 6, 7)
        assert sem.probability({"V1": True, "V2": True}) == pytest.approx(1 / 16)

    def test_words_that_are_also_names_are_values_in_quotes(self):
        sem = SEM.parse('A ~ "B": 0.5, "if": 0.5\nB := A = "B"\nX := A = "if"')
        assert sem.range("A") == ("B", "if")
        assert sem.probability({"B": True, "X": True}) == 0.0

    def test_a_file_is_read_and_named_in_errors(self, tmp_path):
        (tmp_path / "good.sem").write_text("R ~ α: 0.5, β: 0.5", encoding="utf-8")
        (tmp_path / "bad.sem").write_text("R ~ a: 0.5\n", encoding="utf-8")
        (tmp_path / "binary.sem").write_bytes(b"\xff\xfe\x00")
        assert SEM.read(tmp_path / "good.sem").range("R") == ("α", "β")
        with pytest.raises(ParseError, match=r"^bad\.sem, line 1, column 1: .*0\.5"):
            SEM.read(str(tmp_path / "bad.sem"))
        with pytest.raises(ParseError, match=r"^binary\.sem, line 1: this is not UTF-8 text\. Save the file as UTF-8"):
            SEM.read(tmp_path / "binary.sem")
        with pytest.raises(InputError, match=r"missing\.sem does not exist\. Check the path"):
            SEM.read(tmp_path / "missing.sem")
        with pytest.raises(InputError, match="is a folder; a model file was expected"):
            SEM.read(tmp_path)
        with pytest.raises(InputError, match="cannot be read: not a usable path"):
            SEM.read("no\0path.sem")

    def test_a_file_saved_on_another_system_reads_the_same(self, tmp_path):
        text = "R ~ a: 0.5, b: 0.5  # the law\nO := count(R = a) + \\\n  1\n"
        for number, saved in enumerate((text, "\ufeff" + text, text.replace("\n", "\r\n"), text.replace("\n", "\r"))):
            (tmp_path / f"{number}.sem").write_bytes(saved.encode("utf-8"))
            assert SEM.read(tmp_path / f"{number}.sem") == SEM.parse(text)
        with pytest.raises(InputError, match="A model is parsed from text; got bytes"):
            SEM.parse(b"R ~ a: 1")


class TestWriting:
    @pytest.mark.parametrize(
        "text",
        [
            "R1, R2 ~ (neg, a): 0.5, (pos, b): 0, (neg, b): 0.5",
            "A, B ~ (0, x): 0.5, (0, z): 0.25, (1, y): 0.25",
            'A ~ "two words": 0.5, "if": 0.25, \'q"uote\': 0.25',
            'A ~ "A": 0.5, (1, (true, "A")): 0.5',
            "A ~ 0: 0, 1: 1, 2: 0\nX | A ~\n 0 -> b: 1\n _ -> a: 1/3, b: 2/3",
            "A ~ 0: 0.5, 1: 0.5\nX := A // (A + 1) // 1 - (A - (A - 1)) * -A % 3",
            "A ~ 0: 0.5, 1: 0.5\nX := (1 if A = 0 else 2) if (A = 0 if A = 0 else A = 1) else 3",
            "C ~ true: 0.5, false: 0.5\nX := not (C and (C or C)) and (C = true) = C",
            "C, D ~ (true, false): 0.5, (false, true): 0.5\nX := count((C), D = true, (C and D)) + sum(1) - 2",
            "D[1..6] ~ a: 0.5, b: 0.5\nX := count(D[1..6] = a)\nY := (D1, D2, D3, D4)\nZ := any(D1 = a, D2 = b)",
            "D[1..6] ~ 1: 0.5, 2: 0.5\nX := sum(D[2..6], 1) + D1\nY := min(D1, D3, D4, D5, D6)",
            "D07 ~ 1: 0.5, 2: 0.5\nD08 := D07\nD09 := D07\nD10 := D07\nX := sum(D07, D08, D09, D10)",
            "A ~ 0: 0.5, 1: 0.5\nX := truncated_geometric(A, epsilon = 1/3, sensitivity = 2, lower = -1, upper = 3)",
            'A ~ 0: 0.5, 1: 0.5\nX := report_noisy_max(a: A, "b c": 1 - A, epsilon = 2, noise = geometric)',
            "A ~ 0: 0.5, 1: 0.5\nX := choose(A: 1/3, bernoulli(0.1): 1/3, (A, -1): 1/3)",
            "X := bernoulli(0.1)\nY := exponential_mechanism(X, -X, epsilon = 1)\nZ := kary_response(Y, epsilon = 1)",
            "D[1..20] ~ a: 0.5, b: 0.5\nX := truncated_geometric(count(D[1..20] = a), epsilon = 1)",
        ],
    )
    def test_a_model_reads_back_equal_and_writes_the_same_again(self, text):
        sem = SEM.parse(text)
        again = SEM.parse(sem.to_text())
        assert again == sem
        assert again.to_text() == sem.to_text()

    def test_runs_of_names_are_written_as_families(self):
        text = "D[1..6] ~ a: 0.5, b: 0.5\nX := count(D[1..6] = a)\n"
        assert SEM.parse(text).to_text() == text

    def test_a_function_is_written_as_a_table(self):
        sem = SEM.build(exogenous={"A": {0: 0.5, 1: 0.5}}, equations={"X": ("A", lambda a: {a: 0.5, "x": 0.5})})
        assert sem.to_text() == "A ~ 0: 0.5, 1: 0.5\nX | A ~\n    0 -> 0: 0.5, x: 0.5, 1: 0\n    1 -> x: 0.5, 1: 0.5\n"
        assert SEM.parse(sem.to_text()) == sem

    def test_an_intervention_is_written_with_the_whole_range(self):
        sem = SEM.parse(AB + "X := count(A = neg, B = 1)").do(A="pos")
        assert 'A := choose("neg": 0, "pos": 1)' in sem.to_text()
        assert SEM.parse(sem.to_text()) == sem


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "place", "words"),
        [
            ("R1 ~ a: 0.5, b: 0.4", (1, 1), r"population of R1: probabilities add up to 0\.9; they must add up to 1"),
            ("R ~ a: 1\nX | R ~\n  a -> b: 0.7", (3, 3), r"this row: probabilities add up to 0\.7"),
            ("R ~ a: 0.5, b: 0.5\nX | R ~\n  a -> c: 1", (2, 1), r"no row for R = b\. Add it, or a row with _"),
            ("R ~ a: 1\nX | R ~\n  a -> c: 1\n  z -> c: 1", (4, 3), "'R' never takes the value z; its values are a"),
            ("R ~ a: 1\nX | R ~\n  _ -> c: 1\n  a -> c: 1", (4, 3), "rows above already cover this one"),
            ("R ~ a: 1\nX | R ~\n  a, a -> c: 1", (3, 3), "2 values for 1 parents"),
            ("R ~ a: 1\nX | R, R ~\n  a, a -> c: 1", (2, 8), "'R' is listed twice"),
            ("R ~ a: 1\nX | Q ~\n  a -> c: 1", (2, 5), "no variable 'Q'"),
            ("R ~ a: 1\nX | R ~\n  a: 1", (3, 4), "expected '->'"),
            ("R1 ~ a: 1\nX := R11", (2, 6), r"no variable or level 'R11'\. Did you mean 'R1'\?"),
            ("R ~ neg: 0.5, pos: 0.5\nX := R = poz", (2, 10), "no variable or level 'poz'. Did you mean 'pos'"),
            ("R ~ neg: 0.5, pos: 0.5\nS ~ no: 1\nX := R = no", (3, 8), "never equal: one takes neg, pos, the other no"),
            ("R ~ 0: 0.5, 1: 0.5\nX := count(R = 0) = 2", (2, 19), "never equal: one takes 0, 1, the other 2"),
            ("A ~ x: 1\nC := A = x\nX := any(C, A = x)", (3, 15), r"every name before it; write \(X\) for X by itself"),
            ("R ~ 0: 0.5, 1: 0.5\nX := R = true", (2, 8), "never equal: one takes 0, 1, the other true"),
            ("X := Y + 1\nY := Z\nZ := X", (1, 1), "cannot cause themselves: X → Y → Z → X"),
            ("X := X", (1, 1), "X → X"),
            ("R ~ a: 1\nR := 3", (2, 1), "'R' is defined twice"),
            ("A, A ~ (a, b): 1", (1, 4), "'A' is named twice"),
            ("A, B ~ a: 1", (1, 8), "2 variables needs 2 values"),
            ("A, B := 3", (1, 6), "after several names comes '~'"),
            ("A ~ a: 0.5, a: 0.5", (1, 13), "already has a probability"),
            ("A ~ 1: 0.5, true: 0.5", (1, 13), "already has a probability"),
            ("A ~ a: 1.5", (1, 5), "between 0 and 1; got 1.5"),
            ("A ~ a: 1/0", (1, 8), "not defined"),
            ("A ~ a: ln(0)", (1, 8), "not defined"),
            ("A ~ a: 1e999", (1, 8), "too large"),
            ("A ~ a: exp(10000)", (1, 8), "not defined"),
            ("A ~ a: b", (1, 8), "expected a number, such as 0.1"),
            ("A ~ a 0.5", (1, 7), "expected ':'"),
            ("A ~ if: 1", (1, 5), 'word of the language; as a value, write "if"'),
            ("A ~ B: 1\nB ~ c: 1", (1, 5), """'B' is a variable; to use the word as a value, write "B\""""),
            ("if := 3", (1, 1), "word of the language"),
            ("A = 3", (1, 3), "Did you mean ':='"),
            ("3 := A", (1, 1), "starts with a name"),
            ("A :=", (1, 5), "found the end of the line"),
            ("A := 3 4", (1, 8), "expected the end of the line; found '4'"),
            ("A := (1 + 2", (1, 12), r"expected '\)'"),
            ("A := 1.5", (1, 6), "whole numbers"),
            ("A := 1 / 2", (1, 8), "write '//'"),
            ("A := 1 < 2 < 3", (1, 12), "two things at a time"),
            ("A := 5 // 0", (1, 8), "divides by zero"),
            ("A := 5 % 0", (1, 8), "divides by zero"),
            ("A := 1 if true", (1, 15), "expected 'else'"),
            ("A ~ x: 1\nX := A + 1", (2, 6), r"'\+' needs whole numbers; this takes x\. Use count"),
            ("A ~ x: 1\nX := A and true", (2, 6), "'and' needs true or false; this takes x. Compare it"),
            ("A ~ x: 1\nX := 1 if A else 2", (2, 11), "'if' needs true or false"),
            ("A ~ x: 1\nX := count(A)", (2, 12), "count needs true or false"),
            ("A ~ x: 0.5, y: 0.5\nX := 1 if A = x else true", (2, 8), "lists a value twice"),
            ("A := cuont(1)", (1, 6), "no function 'cuont'. Did you mean 'count'"),
            ("A := count()", (1, 6), "at least one argument"),
            ("A := abs(1, 2)", (1, 6), "one argument"),
            ("A := coin(2)", (1, 6), "probability of a coin"),
            ("A := choose(1: 0.5, 2)", (1, 6), "every choice a probability"),
            ("A := choose(1: 0.5, 2: 0.4)", (1, 6), r"add up to 0\.9"),
            ("A ~ x: 1\nX := randomised_response(A)", (2, 6), "needs epsilon"),
            ("A ~ x: 1\nX := randomised_response(A, epsilon = 1)", (2, 6), "two values"),
            ("A ~ x: 1\nX := kary_response(A, A, epsilon = 1)", (2, 6), "one argument; found 2"),
            ("A ~ x: 1\nX := kary_response(A, epsilon = 1, epsilon = 2)", (2, 36), "given twice"),
            ("A ~ x: 1\nX := kary_response(A, epsilon = 1, A)", (2, 36), "takes epsilon"),
            ("A ~ x: 1\nX := truncated_geometric(A, epsilon = 1)", (2, 6), "whole numbers, such as count"),
            ("X := report_noisy_max(a: 1, 2, epsilon = 1)", (1, 6), "candidates with scores"),
            ("X := report_noisy_max(a: 1, a: 2, epsilon = 1)", (1, 6), "same name"),
            ("X := report_noisy_max(a: 1, b: 2, epsilon = 1, noise = pink)", (1, 6), "noise must be one of"),
            ("A ~ x: 1\nX := A[1..3]", (2, 6), "a family can only stand in a list"),
            ("A[3..1] ~ x: 1", (1, 1), "is empty"),
            ("A[1..99999] ~ x: 1", (1, 1), "limited to 10,000 names"),
            ("A[i in 1..2] := B[j]", (1, 19), "'j' is not an index. Known here: i"),
            ("A[1..2] := B[i]", (1, 14), "Bind it as in"),
            ("A[i in 1..2] := B[i - 3]", (1, 24), "cannot be negative"),
            ("A[1..2], B ~ x: 1", (1, 8), "after 'A1' comes"),
            ("A ~ x: 0.5, y: 0.5\nX := count(A, A + 1 = 2)", (2, 21), "compares each with one value"),
            ('A := "open', (1, 6), "not closed before the end of the line"),
            ("A := 1 ≤ 2", (1, 8), "Write <= instead"),
            ('A := "\\q"', (1, 6), "escape"),
            ("A := " + "(" * 60 + "1" + ")" * 60, (1, 46), "nested more than 40 levels"),
            ("A := 99999999999999999999", (1, 6), "at most 2"),
            ("A := 9007199254740992 + 1", (1, 23), "beyond 2"),
            ("# nothing\n", (1, 1), "defines no variables"),
        ],
    )
    def test_an_error_names_the_place_and_the_remedy(self, text, place, words):
        with pytest.raises(ParseError, match=words) as caught:
            SEM.parse(text)
        assert (caught.value.line, caught.value.column) == place

    def test_an_error_shows_the_line_with_a_mark_under_the_place(self):
        with pytest.raises(ParseError) as caught:
            SEM.parse("R ~ a: 0.5, b: 0.5\n  X := R + Q\n", source="survey.sem")
        assert str(caught.value) == (
            "survey.sem, line 2, column 12: there is no variable or level 'Q'. "
            'A new value is written in quotes: "Q".\n'
            "      X := R + Q\n"
            "               ^"
        )

    def test_a_long_line_is_shown_around_the_place(self):
        with pytest.raises(ParseError) as caught:
            SEM.parse("X := " + "1 + " * 500 + "? + " + "1 + " * 500 + "1")
        _, shown, mark = str(caught.value).split("\n")
        assert len(shown) <= 104
        assert shown[mark.index("^")] == "?"

    def test_a_table_or_tuple_beyond_the_limit_is_refused(self):
        wide = "D[1..30] ~ a: 0.5, b: 0.5\n"
        with pytest.raises(ParseError, match="values, or a number beyond"):
            SEM.parse(wide + f"X := ({', '.join(f'D{i}' for i in range(1, 31))})")
        with pytest.raises(ParseError, match="more than 4,194,304 cells"):
            SEM.parse(wide + f"X | D[1..30] ~\n {', '.join('_' * 30)} -> a: 1")
