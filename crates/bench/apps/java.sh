# 20 x SIZE classes, compiled and run.
prepare() {
    for i in $(seq $((SIZE * 20))); do
        echo "class Unit$i { static int value(String text) { return Integer.parseInt(text) + $i; } }" > "Unit$i.java"
    done
    {
        echo 'class Main { public static void main(String[] args) { int sum = 0;'
        for i in $(seq $((SIZE * 20))); do echo "sum += Unit$i.value(\"1\");"; done
        echo 'System.out.println(sum); } }'
    } > Main.java
}
work() { javac -d classes ./*.java; java -cp classes Main > sum; }
result() { cat sum; find classes | sort; }
